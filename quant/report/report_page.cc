#include "quant/report/report_page.h"

#include <filesystem>
#include <optional>
#include <vector>

#include "quant/report/matrix_summary.h"
#include "quant/report/numbers.h"
#include "quant/report/page_charts.h"
#include "quant/report/page_tables.h"
#include "quant/report/printable.h"
#include "quant/report/verdict.h"
#include "quant/report/worst_of_all.h"

namespace sluice {
namespace {

// A number is not torn from its unit at the end of a line.
std::string Unbroken(std::string text) {
  for (const char* unit : {" %", " B", " kB", " MB", " GB", " TB"}) {
    for (size_t at = text.find(unit); at != std::string::npos; at = text.find(unit, at + 1)) {
      text.replace(at, 1, "\u00A0");
    }
  }
  return text;
}

PageData Tile(const std::string& value, const std::string& label) {
  PageData tile;
  tile.set("value", value);
  tile.set("label", label);
  return tile;
}

PageData Tiles(const ModelReport& report) {
  PageData tiles = PageList();
  if (report.loss) {
    tiles << Tile(Significant(report.loss->file.kl.mean), "nats of KL divergence, mean");
    tiles << Tile(Significant(report.loss->file.perplexity, 4),
                  std::format("perplexity; FP32 {}", Significant(report.loss->fp32_perplexity, 4)));
  }
  const bool one = report.layers.size() == 1;
  tiles << Tile(Percent(report.totals.relative_l2_mean),
                one ? "output error" : "output error, mean of the layers");
  if (const auto worst = WorstLayer(report); worst && !one) {
    const LayerReport& layer = report.layers[*worst];
    tiles << Tile(Percent(layer.output.relative_l2),
                  std::format("output error at worst, layer {}", layer.layer));
  }
  tiles << Tile(Significant(report.totals.bits_per_weight), "bits per weight");
  std::string instead =
      std::format("instead of {} in FP32", Size(static_cast<double>(Fp32Bytes(report))));
  if (report.source.bytes != 0 && report.source.bytes != Fp32Bytes(report)) {
    instead += std::format(", {} in the source", Size(static_cast<double>(report.source.bytes)));
  }
  tiles << Tile(Size(static_cast<double>(report.totals.ffn_bytes)), instead);
  return tiles;
}

std::string Title(const ModelReport& report) {
  std::filesystem::path path = report.model;
  if (!path.has_filename()) path = path.parent_path();  // a folder given as "folder/"
  const std::string name = path.filename().string();
  return Printable(name.empty() ? report.model : name);
}

PageData Warnings(const ModelReport& report) {
  PageData list = PageList();
  for (const std::string& warning : OtherWarnings(report)) {
    list << PageData("text", Printable(warning));
  }
  return list;
}

size_t CountInfos(const ModelReport& report) {
  return static_cast<size_t>(
      std::ranges::count(report.findings, Severity::kInfo, &Finding::severity));
}

// The row of the table that compares files.
void SetFigures(PageData& file, const ModelReport& report) {
  const std::optional<ModelLoss>& loss = report.loss;
  file.set("perplexity", loss ? Significant(loss->file.perplexity, 4) : "–");
  file.set("kl_mean", loss ? Significant(loss->file.kl.mean) : "–");
  file.set("kl_median", loss ? Significant(loss->file.kl.median) : "–");
  file.set("top1", loss ? Percent(loss->file.top1_agreement) : "–");
  file.set("bits", Significant(report.totals.bits_per_weight));
  file.set("size_value", Size(static_cast<double>(report.totals.ffn_bytes)));
  file.set("error_mean", Percent(report.totals.relative_l2_mean));
  const std::optional<size_t> worst = WorstLayer(report);
  file.set("error_worst", worst ? std::format("{}: {}", report.layers[*worst].layer,
                                              Percent(report.layers[*worst].output.relative_l2))
                                : "–");
  file.set("alarms", std::to_string(report.findings.size() - CountInfos(report)));
}

// How much of what gate and up do together is the product of their errors.
void SetInteraction(PageData& file, const ModelReport& report) {
  const std::optional<GateUpInteraction> mean = MeanInteraction(report);
  file.set("has_interaction", PageData(mean.has_value()));
  if (!mean) return;
  file.set("interaction", Unbroken(InteractionText(report, *mean)));
  file.set("interaction_chart", InteractionChart(report));
}

PageData FileSection(const ModelReport& report, size_t index, const HeatScale& heat) {
  const Verdict verdict = Judge(report);
  const std::vector<SummaryRow> rows = Summarize(MatricesOf(report));
  PageData file;
  file.set("name", FileName(report));
  file.set("color", ColorClass(index));
  SetFigures(file, report);
  file.set("loss", Unbroken(report.loss ? Printable(verdict.loss) : ""));
  file.set("cost", Unbroken(verdict.cost));
  file.set("source", Unbroken(verdict.source));
  file.set("size", Unbroken(verdict.size));
  file.set("has_warnings", PageData(!OtherWarnings(report).empty()));
  file.set("warnings", Warnings(report));
  const auto infos = CountInfos(report);
  const auto alarms = report.findings.size() - infos;
  file.set("findings", FindingList(report, /*information=*/false));
  SetIfAny(file, "no_findings",
           alarms != 0
               ? ""
               : "Nothing looks wrong: gate and up are in their places, no weight, block or "
                 "input is what the model cannot have.");
  file.set("has_infos", PageData(infos != 0));
  file.set("infos", FindingList(report, /*information=*/true));
  file.set("info_count", std::to_string(infos));
  file.set("heat_columns", HeatColumns());
  file.set("heat_rows", HeatRows(report, heat));
  file.set("heat_low", Percent(heat.low));
  file.set("heat_top", Percent(heat.top));
  SetInteraction(file, report);
  file.set("tokens", TokenTable(report));
  file.set("neurons", NeuronTable(report));
  file.set("peaks", PeakTable(report));
  file.set("super_weights", SuperWeightList(report));
  const bool super = std::ranges::any_of(
      report.layers, [](const LayerReport& layer) { return layer.super_weight.has_value(); });
  SetIfAny(file, "no_super_weights", super ? "" : "No super weight was found on these inputs.");
  file.set("summary", SummaryTable(rows));
  file.set("layers", LayerTable(report));
  file.set("matrices", MatrixTable(report));
  file.set("histograms", Histograms(report));
  return file;
}

// What only the page of one file has: its verdict in sentences, the model's loss first if there is
// one, and its figures in large digits.
void SetSingle(PageData& page, const ModelReport& report) {
  const Verdict verdict = Judge(report);
  page.set("lead", Unbroken(Printable(report.loss ? verdict.loss : verdict.cost)));
  SetIfAny(page, "also", report.loss ? Unbroken(verdict.cost) : "");
  SetIfAny(page, "source", Unbroken(verdict.source));
  SetIfAny(page, "size", Unbroken(verdict.size));
  page.set("tiles", Tiles(report));
}

}  // namespace

PageData ReportPage(std::span<const ModelReport> reports, const ReportOrigin& origin) {
  const ModelReport& first = reports.front();
  PageData page;
  page.set("title", Title(first));
  page.set("model", Printable(first.model));
  SetIfAny(page, "alarm", RandomInputsWarning(first));
  SetIfAny(page, "source_alarm", QuantizedSourceWarning(first.source));
  page.set("single", PageData(reports.size() == 1));
  page.set("several", PageData(reports.size() != 1));
  if (reports.size() == 1) SetSingle(page, first);
  page.set("fp32_perplexity",
           first.loss ? Significant(first.loss->fp32_perplexity, 4) : std::string("–"));
  SetIfAny(page, "no_loss", first.loss ? "" : Judge(first).loss);
  const HeatScale heat = MakeHeatScale(reports);
  PageData files = PageList();
  PageData swaps = PageList();
  std::string names;
  for (size_t i = 0; i < reports.size(); ++i) {
    files << FileSection(reports[i], i, heat);
    const std::string swap = SwapWarning(reports[i]);
    if (!swap.empty()) swaps << PageData("text", swap);
    names += (names.empty() ? "" : ", ") + Printable(reports[i].file);
  }
  page.set("files", files);
  page.set("swaps", swaps);
  page.set("file_names", names);
  page.set("parts", PartBars(reports));
  page.set("curves", ErrorCurves(reports));
  page.set("command", Printable(origin.command));
  page.set("calibration", std::format("{}, {}", Printable(first.calibration_source),
                                      Plural(first.calibration_tokens, "token")));
  page.set("backend", Printable(first.backend));
  page.set("cpu", Printable(first.cpu));
  page.set("version", Printable(origin.version));
  return page;
}

}  // namespace sluice
