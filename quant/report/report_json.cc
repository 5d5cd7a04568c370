#include "quant/report/report_json.h"

#include "quant/report/evaluation_json.h"
#include "quant/report/json_text.h"
#include "quant/report/parts.h"

namespace sluice {
namespace {

template <class T>
Json ValueOrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json HistogramJson(const WeightHistogram& histogram) {
  return {{"limit", NumberOrNull(histogram.limit)},
          {"before", histogram.before},
          {"after", histogram.after}};
}

Json MatrixJson(const MatrixReport& matrix) {
  return {{"format", Name(matrix.format)},
          {"requested", Name(matrix.requested)},
          {"method", TextOrNull(matrix.method)},
          {"requested_method", TextOrNull(matrix.requested_method)},
          {"shape", {matrix.rows, matrix.cols}},
          {"bits_per_weight", NumberOrNull(matrix.bits_per_weight)},
          {"weight_relative_rmse", NumberOrNull(matrix.weight_relative_rmse)},
          {"weight_max_abs_error", NumberOrNull(matrix.weight_max_abs_error)},
          {"zero_blocks", matrix.zero_blocks},
          {"histogram", HistogramJson(matrix.histogram)}};
}

Json OutputJson(const OutputReport& output) {
  return {{"relative_l2", NumberOrNull(output.relative_l2)},
          {"sqnr_db", NumberOrNull(output.sqnr_db)},
          {"cosine_mean", NumberOrNull(output.cosine_mean)},
          {"cosine_min", NumberOrNull(output.cosine_min)},
          {"max_abs_error", NumberOrNull(output.max_abs_error)},
          {"worst_token", output.worst_token}};
}

Json AttributionJson(const Attribution& attribution) {
  Json json = Json::object();
  for (const Part& part : kParts) {
    if (const auto error = part.error(attribution)) json[part.key] = NumberOrNull(*error);
  }
  json["all"] = NumberOrNull(attribution.all);
  return json;
}

Json InteractionJson(const std::optional<GateUpInteraction>& interaction) {
  if (!interaction) return nullptr;
  return {{"together", NumberOrNull(interaction->together)},
          {"product", NumberOrNull(interaction->product)},
          {"cosine", NumberOrNull(interaction->cosine)}};
}

Json TokensJson(const std::vector<TokenShare>& tokens) {
  Json json = Json::array();
  for (const TokenShare& token : tokens) {
    json.push_back({{"token", token.token},
                    {"relative_l2", NumberOrNull(token.relative_l2)},
                    {"share", NumberOrNull(token.share)}});
  }
  return json;
}

Json NeuronsJson(const std::vector<NeuronShare>& neurons) {
  Json json = Json::array();
  for (const NeuronShare& neuron : neurons) {
    json.push_back({{"neuron", neuron.neuron},
                    {"share", NumberOrNull(neuron.share)},
                    {"key", NumberOrNull(neuron.key)},
                    {"value", NumberOrNull(neuron.value)},
                    {"token", neuron.token}});
  }
  return json;
}

Json PeaksJson(const std::vector<ActivationPeak>& peaks) {
  Json json = Json::array();
  for (const ActivationPeak& peak : peaks) {
    json.push_back({{"site", Name(peak.site)},
                    {"token", peak.token},
                    {"channel", peak.channel},
                    {"value", NumberOrNull(peak.value)},
                    {"over_median", NumberOrNull(peak.over_median)},
                    {"over_channel", NumberOrNull(peak.over_channel)}});
  }
  return json;
}

Json SuperWeightJson(const std::optional<SuperWeight>& weight) {
  if (!weight) return nullptr;
  return {{"row", weight->row},
          {"column", weight->column},
          {"token", weight->token},
          {"trained", NumberOrNull(weight->trained)},
          {"stored", NumberOrNull(weight->stored)},
          {"output", NumberOrNull(weight->output)},
          {"share", NumberOrNull(weight->share)}};
}

Json LayerJson(const LayerReport& layer) {
  Json matrices = Json::object();
  for (const Matrix m : kMatrices) {
    if (layer.matrices[m]) matrices[Name(m)] = MatrixJson(*layer.matrices[m]);
  }
  return {{"layer", layer.layer},
          {"tokens", layer.tokens},
          {"activations",
           {{"input", Name(layer.input_activations)}, {"hidden", Name(layer.hidden_activations)}}},
          {"matrices", std::move(matrices)},
          {"output", OutputJson(layer.output)},
          {"attribution", AttributionJson(layer.attribution)},
          {"interaction", InteractionJson(layer.interaction)},
          {"worst_tokens", TokensJson(layer.worst_tokens)},
          {"worst_neurons", NeuronsJson(layer.worst_neurons)},
          {"peaks", PeaksJson(layer.peaks)},
          {"super_weight", SuperWeightJson(layer.super_weight)}};
}

Json FindingJson(const Finding& finding) {
  return {{"kind", Name(finding.kind)},
          {"layer", ValueOrNull(finding.layer)},
          {"matrix", finding.matrix ? Json(Name(*finding.matrix)) : Json()},
          {"row", ValueOrNull(finding.row)},
          {"column", ValueOrNull(finding.column)},
          {"block", ValueOrNull(finding.block)},
          {"token", ValueOrNull(finding.token)},
          {"severity", Name(finding.severity)},
          {"message", finding.message}};
}

Json LossJson(const std::optional<ModelLoss>& loss) {
  if (!loss) return nullptr;
  Json file = FileEvaluationJson(loss->file);
  // A curve over the window, which the evaluation itself has.
  file.erase("per_position");
  return {{"source", loss->source},
          {"tokens", loss->tokens},
          {"context", loss->context},
          {"fp32", {{"perplexity", NumberOrNull(loss->fp32_perplexity)}}},
          {"file", std::move(file)}};
}

Json SourceJson(const SourceReport& source) {
  return {{"types", source.types}, {"bytes", source.bytes}, {"quantized", source.quantized}};
}

Json OneReport(const ModelReport& report) {
  Json layers = Json::array();
  for (const LayerReport& layer : report.layers) layers.push_back(LayerJson(layer));
  Json findings = Json::array();
  for (const Finding& finding : report.findings) findings.push_back(FindingJson(finding));
  return {{"schema", "sluice.report/1"},
          {"model", report.model},
          {"file", report.file},
          {"source", SourceJson(report.source)},
          {"calibration",
           {{"source", report.calibration_source}, {"tokens", report.calibration_tokens}}},
          {"cpu", report.cpu},
          {"backend", report.backend},
          {"layers", std::move(layers)},
          {"totals",
           {{"bits_per_weight", NumberOrNull(report.totals.bits_per_weight)},
            {"ffn_bytes", report.totals.ffn_bytes},
            {"relative_l2_mean", NumberOrNull(report.totals.relative_l2_mean)},
            {"relative_l2_max", NumberOrNull(report.totals.relative_l2_max)}}},
          {"evaluation", LossJson(report.loss)},
          {"findings", std::move(findings)},
          {"warnings", report.warnings}};
}

}  // namespace

std::string ReportJson(std::span<const ModelReport> reports) {
  if (reports.size() == 1) return JsonText(OneReport(reports[0]));
  Json all = Json::array();
  for (const ModelReport& report : reports) all.push_back(OneReport(report));
  return JsonText({{"schema", "sluice.reports/1"}, {"reports", std::move(all)}});
}

}  // namespace sluice
