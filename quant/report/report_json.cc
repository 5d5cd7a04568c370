#include "quant/report/report_json.h"

#include "quant/report/json_text.h"
#include "quant/report/parts.h"

namespace sluice {
namespace {

Json TextOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json MatrixJson(const MatrixReport& matrix) {
  return {{"format", Name(matrix.format)},
          {"requested", Name(matrix.requested)},
          {"method", TextOrNull(matrix.method)},
          {"requested_method", TextOrNull(matrix.requested_method)},
          {"shape", {matrix.rows, matrix.cols}},
          {"bits_per_weight", NumberOrNull(matrix.bits_per_weight)},
          {"weight_relative_rmse", NumberOrNull(matrix.weight_relative_rmse)},
          {"weight_max_abs_error", NumberOrNull(matrix.weight_max_abs_error)},
          {"zero_blocks", matrix.zero_blocks}};
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
          {"attribution", AttributionJson(layer.attribution)}};
}

Json SourceJson(const SourceReport& source) {
  return {{"types", source.types}, {"bytes", source.bytes}, {"quantized", source.quantized}};
}

}  // namespace

std::string ReportJson(const ModelReport& report) {
  Json layers = Json::array();
  for (const LayerReport& layer : report.layers) layers.push_back(LayerJson(layer));
  const Json json = {
      {"schema", "sluice.report/1"},
      {"model", report.model},
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
      {"warnings", report.warnings}};
  return JsonText(json);
}

}  // namespace sluice
