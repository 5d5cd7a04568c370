#include "quant/cli/bench_results.h"

#include <algorithm>
#include <format>

#include "quant/report/json_text.h"
#include "quant/report/numbers.h"
#include "quant/report/text_table.h"

namespace sluice {
namespace {

double GigabytesPerSecond(const BenchResults& results, const BenchCase& c) {
  return static_cast<double>(results.blocks[c.block].stored_bytes()) / c.median() / 1e9;
}

double GigaoperationsPerSecond(const BenchResults& results, const BenchCase& c) {
  const auto operations = static_cast<double>(results.blocks[c.block].operations_per_token());
  return operations * static_cast<double>(c.tokens) / c.median() / 1e9;
}

bool Comparable(const BenchCase& a, const BenchCase& b) {
  return a.block == b.block && a.tokens == b.tokens && a.threads == b.threads;
}

// Far above what is seen on an idle machine, where a median is within a tenth or so of the minimum.
constexpr double kBusyRatio = 2;

}  // namespace

std::string BusyWarning(const std::vector<BenchCase>& cases) {
  const auto busy = std::ranges::count_if(
      cases, [](const BenchCase& c) { return c.median() > kBusyRatio * c.min(); });
  if (busy == 0) return "";
  return std::format(
      "the machine was busy: in {} of {} the median is more than twice the minimum; these figures "
      "are not its speed",
      busy, Plural(cases.size(), "row"));
}

std::string BenchJson(const BenchResults& results) {
  Json list = Json::array();
  for (const BenchCase& c : results.cases) {
    const BlockView& block = results.blocks[c.block].view;
    list.push_back({{"shape", {block.d_model, block.d_ff}},
                    {"weights", c.weights},
                    {"activations", c.activations},
                    {"tokens", c.tokens},
                    {"threads", c.threads},
                    {"backend", c.backend},
                    {"target", c.target},
                    {"cache", results.cold ? "cold" : "warm"},
                    {"rounds", c.seconds.size()},
                    {"seconds_median", c.median()},
                    {"seconds_min", c.min()},
                    {"seconds_max", c.max()},
                    {"gb_per_s", GigabytesPerSecond(results, c)},
                    {"gop_per_s", GigaoperationsPerSecond(results, c)}});
  }
  return JsonText({{"schema", "sluice.bench/1"},
                   {"machine", results.machine},
                   {"busy", !BusyWarning(results.cases).empty()},
                   {"results", std::move(list)}});
}

std::string BenchText(const BenchResults& results) {
  TextTable table({{"weights", Align::kLeft},
                   {"activations", Align::kLeft},
                   {"tokens"},
                   {"threads"},
                   {"backend", Align::kLeft},
                   {"target", Align::kLeft},
                   {"median"},
                   {"min"},
                   {"max"},
                   {"GB/s"},
                   {"GOP/s"},
                   {"speed"}});
  const BenchCase* first = nullptr;
  for (const BenchCase& c : results.cases) {
    const bool compared = first != nullptr && Comparable(*first, c);
    if (!compared) first = &c;
    table.AddRow({c.weights, c.activations, std::to_string(c.tokens), std::to_string(c.threads),
                  c.backend, c.target, Duration(c.median()), Duration(c.min()), Duration(c.max()),
                  Significant(GigabytesPerSecond(results, c)),
                  Significant(GigaoperationsPerSecond(results, c)),
                  compared ? std::format("{:.2f} x", MedianRatio(*first, c)) : "1"});
  }
  const std::string warning = BusyWarning(results.cases);
  return table.Text() + (warning.empty() ? "" : "\n" + warning + "\n");
}

}  // namespace sluice
