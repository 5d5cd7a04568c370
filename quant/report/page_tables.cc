#include "quant/report/page_tables.h"

#include <optional>
#include <string>

#include "quant/report/numbers.h"
#include "quant/report/printable.h"
#include "quant/report/worst_of_all.h"

namespace sluice {
namespace {

std::string Fixed(double value, int digits) {
  return std::isfinite(value) ? std::format("{:.{}f}", value, digits) : Significant(value);
}

// "layer 3, down, row 7, column 41, token 12"
std::string Where(const Finding& finding) {
  std::string where;
  const auto add = [&](const char* name, const std::optional<size_t>& place) {
    if (!place) return;
    where += std::format("{}{} {}", where.empty() ? "" : ", ", name, *place);
  };
  add("layer", finding.layer);
  if (finding.matrix) {
    where += std::format("{}{}", where.empty() ? "" : ", ", Name(*finding.matrix));
  }
  add("row", finding.row);
  add("column", finding.column);
  add("block", finding.block);
  add("token", finding.token);
  return where;
}

// What a matrix's table says of its format and method.
template <class T>
void SetFormat(PageData& line, const T& matrix, bool fallback) {
  line.set("requested", Name(matrix.requested));
  line.set("format", Name(matrix.format));
  line.set("changed", PageData(matrix.requested != matrix.format));
  line.set("method", matrix.method.empty() ? "–" : Printable(matrix.method));
  line.set("fallback", PageData(fallback));
}

}  // namespace

PageData FindingList(const ModelReport& report, bool information) {
  PageData list = PageList();
  for (const Finding& finding : report.findings) {
    if ((finding.severity == Severity::kInfo) != information) continue;
    PageData item;
    item.set("kind", std::string(Name(finding.kind)));
    item.set("severity", std::string(Name(finding.severity)));
    SetIfAny(item, "where", Where(finding));
    item.set("message", Printable(finding.message));
    list << item;
  }
  return list;
}

PageData TokenTable(const ModelReport& report) {
  PageData table = PageList();
  for (const auto& [layer, token] : WorstTokensOfAll(report, kPageTokens)) {
    PageData line;
    line.set("layer", std::to_string(layer));
    line.set("token", std::to_string(token.token));
    line.set("relative_l2", Percent(token.relative_l2));
    line.set("share", Percent(token.share));
    table << line;
  }
  return table;
}

PageData NeuronTable(const ModelReport& report) {
  PageData table = PageList();
  const bool gated = !report.layers.empty() && report.layers[0].matrices[Matrix::kGate];
  for (const auto& [layer, neuron] : WorstNeuronsOfAll(report, kPageNeurons)) {
    PageData line;
    line.set("layer", std::to_string(layer));
    line.set("neuron", std::to_string(neuron.neuron));
    line.set("key_name", std::format("{} row {}", gated ? "gate, up" : "up", neuron.neuron));
    line.set("share", Percent(neuron.share));
    line.set("key", Percent(neuron.key));
    line.set("value", Percent(neuron.value));
    line.set("token", std::to_string(neuron.token));
    table << line;
  }
  return table;
}

PageData PeakTable(const ModelReport& report) {
  PageData table = PageList();
  for (const auto& [layer, peak] : PeaksOfAll(report, kPagePeaks)) {
    PageData line;
    line.set("layer", std::to_string(layer));
    line.set("site", std::string(Name(peak.site)));
    line.set("token", std::to_string(peak.token));
    line.set("channel", std::to_string(peak.channel));
    line.set("value", Significant(peak.value));
    line.set("over_median", Times(peak.over_median));
    line.set("over_channel", Times(peak.over_channel));
    line.set("massive", IsMassive(peak) ? "massive" : "");
    table << line;
  }
  return table;
}

PageData SuperWeightList(const ModelReport& report) {
  PageData list = PageList();
  for (const LayerReport& layer : report.layers) {
    if (!layer.super_weight) continue;
    list << PageData("text", SuperWeightText(layer));
  }
  return list;
}

PageData SummaryTable(const std::vector<SummaryRow>& rows) {
  PageData table = PageList();
  for (const SummaryRow& row : rows) {
    PageData line;
    line.set("matrix", std::string(Name(row.matrix)));
    line.set("layers", Ranges(row.layers));
    SetFormat(line, row, row.fallback);
    line.set("bits", Significant(row.bits_per_weight, 4));
    line.set("bytes", Size(row.bytes));
    line.set("rmse_mean", Percent(row.rmse_mean));
    line.set("rmse_worst", std::format("{}: {}", row.rmse_max_layer, Percent(row.rmse_max)));
    line.set("max_abs", Significant(row.max_abs_error));
    line.set("zero_blocks", Grouped(row.zero_blocks));
    table << line;
  }
  return table;
}

PageData LayerTable(const ModelReport& report) {
  PageData table = PageList();
  for (const LayerReport& layer : report.layers) {
    const OutputReport& output = layer.output;
    PageData line;
    line.set("layer", std::to_string(layer.layer));
    line.set("tokens", Grouped(layer.tokens));
    line.set("activations",
             std::format("{}, {}", Name(layer.input_activations), Name(layer.hidden_activations)));
    line.set("relative_l2", Percent(output.relative_l2));
    line.set("sqnr", Fixed(output.sqnr_db, 1));
    line.set("cosine_mean", Fixed(output.cosine_mean, 5));
    line.set("cosine_min", Fixed(output.cosine_min, 5));
    line.set("max_abs", Significant(output.max_abs_error));
    line.set("worst_token", std::to_string(output.worst_token));
    table << line;
  }
  return table;
}

PageData MatrixTable(const ModelReport& report) {
  PageData table = PageList();
  for (const LayerReport& layer : report.layers) {
    bool first = true;
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      const MatrixReport& matrix = *layer.matrices[m];
      PageData line;
      line.set("first", PageData(first));
      line.set("layer", std::to_string(layer.layer));
      line.set("matrix", std::string(Name(m)));
      line.set("shape", std::format("{} × {}", matrix.rows, matrix.cols));
      SetFormat(line, matrix, matrix.method != matrix.requested_method);
      line.set("bits", Significant(matrix.bits_per_weight, 4));
      line.set("rmse", Percent(matrix.weight_relative_rmse));
      line.set("max_abs", Significant(matrix.weight_max_abs_error));
      line.set("zero_blocks", Grouped(matrix.zero_blocks));
      table << line;
      first = false;
    }
  }
  return table;
}

}  // namespace sluice
