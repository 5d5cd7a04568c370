#include "quant/report/report_text.h"

#include <algorithm>
#include <format>

#include "quant/report/matrix_summary.h"
#include "quant/report/numbers.h"
#include "quant/report/parts.h"
#include "quant/report/printable.h"
#include "quant/report/text_table.h"
#include "quant/report/verdict.h"
#include "quant/report/worst_of_all.h"

namespace sluice {
namespace {

// The page and JSON have more.
constexpr size_t kTextRows = 5;
constexpr size_t kTextPeaks = 2;  // for each site

// Words at most `width` columns a line, every line indented.
std::string Wrapped(const std::string& text, size_t width, const std::string& indent) {
  std::string out;
  std::string line;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, space - at);
    if (!line.empty() && DisplayWidth(line) + 1 + DisplayWidth(word) > width) {
      out += indent + line + "\n";
      line.clear();
    }
    line += line.empty() ? word : " " + word;
    at = space + 1;
  }
  return line.empty() ? out : out + indent + line + "\n";
}

std::string Paragraph(const std::string& text) { return Wrapped(text, 96, "  "); }

std::string LayerTable(const ModelReport& report) {
  TextTable table({{"layer"},
                   {"tokens"},
                   {"error"},
                   {"SQNR dB"},
                   {"min cosine"},
                   {"max |error|"},
                   {"worst token"},
                   {"gate"},
                   {"up"},
                   {"down"},
                   {"input"},
                   {"hidden"}});
  for (const LayerReport& layer : report.layers) {
    std::vector<std::string> cells = {std::to_string(layer.layer),
                                      std::to_string(layer.tokens),
                                      Percent(layer.output.relative_l2),
                                      std::format("{:.1f}", layer.output.sqnr_db),
                                      std::format("{:.5f}", layer.output.cosine_min),
                                      Significant(layer.output.max_abs_error),
                                      std::to_string(layer.output.worst_token)};
    for (const Part& part : kParts) {
      const auto error = part.error(layer.attribution);
      cells.push_back(error ? Percent(*error) : "-");
    }
    table.AddRow(std::move(cells));
  }
  return table.Text();
}

std::string Place(const std::optional<size_t>& place) {
  return place ? std::to_string(*place) : "-";
}

std::string FindingTable(const ModelReport& report) {
  TextTable table({{"finding", Align::kLeft},
                   {"severity", Align::kLeft},
                   {"layer"},
                   {"matrix", Align::kLeft},
                   {"row"},
                   {"column"},
                   {"block"},
                   {"token"}});
  for (const Finding& finding : report.findings) {
    table.AddRow({std::string(Name(finding.kind)), std::string(Name(finding.severity)),
                  Place(finding.layer), finding.matrix ? std::string(Name(*finding.matrix)) : "-",
                  Place(finding.row), Place(finding.column), Place(finding.block),
                  Place(finding.token)});
  }
  return table.Text();
}

std::string TokenTable(const ModelReport& report) {
  TextTable table({{"layer"}, {"token"}, {"error"}, {"share of the layer's"}});
  for (const auto& [layer, token] : WorstTokensOfAll(report, kTextRows)) {
    table.AddRow({std::to_string(layer), std::to_string(token.token), Percent(token.relative_l2),
                  Percent(token.share)});
  }
  return table.Text();
}

std::string NeuronTable(const ModelReport& report) {
  TextTable table({{"layer"},
                   {"neuron"},
                   {"share of the layer's"},
                   {"by gate, up (key)"},
                   {"by down (value)"},
                   {"most for token"}});
  for (const auto& [layer, neuron] : WorstNeuronsOfAll(report, kTextRows)) {
    table.AddRow({std::to_string(layer), std::to_string(neuron.neuron), Percent(neuron.share),
                  Percent(neuron.key), Percent(neuron.value), std::to_string(neuron.token)});
  }
  return table.Text();
}

std::string PeakTable(const ModelReport& report) {
  TextTable table({{"layer"},
                   {"where", Align::kLeft},
                   {"token"},
                   {"channel"},
                   {"value"},
                   {"over the median"},
                   {"", Align::kLeft}});
  for (const auto& [layer, peak] : PeaksOfAll(report, kTextPeaks)) {
    table.AddRow({std::to_string(layer), std::string(Name(peak.site)), std::to_string(peak.token),
                  std::to_string(peak.channel), Significant(peak.value), Times(peak.over_median),
                  IsMassive(peak) ? "massive" : ""});
  }
  return table.Text();
}

// Which tokens, neurons, activations and weights it is.
std::string Places(const ModelReport& report) {
  std::string text;
  if (const auto mean = MeanInteraction(report)) {
    text += "\nGate and up: their errors multiply\n" + Paragraph(InteractionText(report, *mean));
  }
  text += "\nWorst tokens\n" + TokenTable(report);
  text += "\nWorst neurons, by their share of their layer's squared error\n" + NeuronTable(report);
  text += "\nLargest activations\n" + PeakTable(report);
  for (const LayerReport& layer : report.layers) {
    if (layer.super_weight) text += Paragraph("super weight: " + SuperWeightText(layer));
  }
  return text;
}

std::string Warnings(const ModelReport& report) {
  std::string text;
  for (const std::string& warning : OtherWarnings(report)) {
    text += Paragraph("warning: " + Printable(warning));
  }
  return text;
}

std::string Banner(const std::string& warning) {
  return warning.empty() ? "" : Wrapped(warning, 92, "  !! ") + "\n";
}

}  // namespace

std::string ReportVerdictText(const ModelReport& report) {
  const Verdict verdict = Judge(report);
  std::string text = Banner(SwapWarning(report)) + Banner(RandomInputsWarning(report)) +
                     Banner(QuantizedSourceWarning(report.source));
  for (const std::string* sentence :
       {&verdict.loss, &verdict.cost, &verdict.source, &verdict.size}) {
    text += Paragraph(*sentence);
  }
  return text;
}

std::string SizeVerdictText(const FfnTotals& stored, const SourceReport& source) {
  return Banner(QuantizedSourceWarning(source)) + Paragraph(SizeVerdict(stored, source));
}

std::string ReportText(const ModelReport& report) {
  std::string text = std::format("Quantization report for {}\n\n", Printable(report.model));
  text += ReportVerdictText(report);
  text += "\nOutput error of each block, and what it is when only one part is quantized\n";
  text += LayerTable(report);
  if (!report.findings.empty()) text += "\nFindings\n" + FindingTable(report);
  text += Places(report);
  text += "\nFormats\n" + SummaryText(Summarize(MatricesOf(report)));
  text += std::format(
      "\n  inputs   {}, {}\n  backend  {}\n  CPU      {}\n", Printable(report.calibration_source),
      Plural(report.calibration_tokens, "token"), Printable(report.backend), Printable(report.cpu));
  const std::string warnings = Warnings(report);
  if (!warnings.empty()) text += "\n" + warnings;
  return text;
}

}  // namespace sluice
