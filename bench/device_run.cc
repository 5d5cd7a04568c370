#include "bench/device_run.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <format>
#include <functional>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "src/base/default_threads.h"
#include "src/base/status.h"

namespace sluice::bench {
namespace {

using Complete = std::function<void(Json& context)>;

// Google Benchmark writes the context first, of strings only. Here all is kept until the end, and
// completed then.
class CompletingReporter final : public benchmark::JSONReporter {
 public:
  explicit CompletingReporter(Complete complete) : complete_(std::move(complete)) {}

  bool ReportContext(const Context& context) override {
    out_ = &GetOutputStream();
    SetOutputStream(&buffer_);
    return JSONReporter::ReportContext(context);
  }

  void Finalize() override {
    JSONReporter::Finalize();
    Json document = Json::parse(buffer_.str(), nullptr, /*allow_exceptions=*/false);
    whole_ = document.is_object() && document["context"].is_object();
    if (!whole_) {
      *out_ << buffer_.str();  // a counter was not finite, which Google Benchmark writes as it is
      return;
    }
    complete_(document["context"]);
    *out_ << JsonText(document);
  }

  bool whole() const { return whole_; }

 private:
  Complete complete_;
  std::ostream* out_ = nullptr;
  std::ostringstream buffer_;
  bool whole_ = true;  // until found otherwise
};

bool Has(const std::vector<char*>& arguments, std::string_view start) {
  return std::ranges::any_of(arguments, [&](const char* argument) {
    return std::string_view(argument).starts_with(start);
  });
}

}  // namespace

DeviceLog StartDeviceLog(const Options& options) {
  return DeviceLog(DeviceFiles(options.device_root), options.threads, options.governor_was);
}

Status LogDram(Limits& limits, DeviceLog& log) {
  const size_t threads = CpusFor(AffinityCpus(), "");
  SLUICE_ASSIGN(const double one, limits.Dram(1));
  SLUICE_ASSIGN(const double all, limits.Dram(threads));
  log.SetDram(one, all, threads);
  return {};
}

bool RunBenchmarks(std::vector<char*> rest, DeviceLog& log, const Json& more) {
  std::optional<DeviceLog::Summary> summary;
  const auto finish = [&]() -> const DeviceLog::Summary& {
    if (!summary) summary = log.Finish();
    return *summary;
  };
  const Complete complete = [&](Json& context) {
    for (const auto& [key, value] : more.items()) context[key] = value;
    context["device"] = finish().json;
  };
  CompletingReporter display(complete);
  CompletingReporter file(complete);
  const bool json_display = Has(rest, "--benchmark_format=json");
  const bool json_file =
      Has(rest, "--benchmark_out=") &&
      (!Has(rest, "--benchmark_out_format=") || Has(rest, "--benchmark_out_format=json"));
  const bool only_list = Has(rest, "--benchmark_list_tests");

  int count = static_cast<int>(rest.size());
  benchmark::Initialize(&count, rest.data());
  benchmark::RunSpecifiedBenchmarks(json_display ? &display : nullptr, json_file ? &file : nullptr);
  benchmark::Shutdown();
  if (only_list) return true;
  std::fputs(finish().text.c_str(), stderr);
  if (display.whole() && file.whole()) return true;
  std::fputs("error: a result is not finite, so the JSON lacks the device\n", stderr);
  return false;
}

}  // namespace sluice::bench
