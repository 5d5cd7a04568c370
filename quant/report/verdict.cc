#include "quant/report/verdict.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <format>
#include <limits>
#include <utility>

#include "quant/report/numbers.h"
#include "quant/report/printable.h"

namespace sluice {
namespace {

double Rank(double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

std::string Cost(const ModelReport& report) {
  const std::optional<size_t> worst = WorstLayer(report);
  if (!worst) return "There are no layers.";
  const LayerReport& layer = report.layers[*worst];
  if (!std::isfinite(layer.output.relative_l2)) {
    return std::format(
        "Layer {}: the error is not a finite number. Some output is infinite or NaN, or FP32's "
        "is zero throughout.",
        layer.layer);
  }
  if (layer.output.relative_l2 == 0.0) {
    return "The blocks reproduce FP32's output exactly.";
  }
  const std::string inputs =
      report.calibration_source == "random" ? "On random inputs" : "On the calibration inputs";
  if (report.layers.size() == 1) {
    return std::format("{}, the block's output is {} away from FP32's.", inputs,
                       Percent(layer.output.relative_l2));
  }
  return std::format(
      "{}, a block's output is {} away from FP32's on average, and {} at worst, in layer {}.",
      inputs, Percent(report.totals.relative_l2_mean), Percent(layer.output.relative_l2),
      layer.layer);
}

std::string Loss(const ModelReport& report) {
  if (!report.loss) {
    return "What this costs the model's predictions was not measured: `sluice eval MODEL FILE "
           "--tokens TOKENS --json EVAL` does, and --eval EVAL puts it here.";
  }
  const ModelLoss& loss = *report.loss;
  return std::format(
      "The model's perplexity goes from {} to {}; KL divergence of its predictions from FP32's: {} "
      "nats on average, {} in the median; the likeliest token is the same for {} ({} of {}).",
      Significant(loss.fp32_perplexity, 4), Significant(loss.file.perplexity, 4),
      Significant(loss.file.kl.mean), Significant(loss.file.kl.median),
      Percent(loss.file.top1_agreement), Plural(loss.tokens, "token"), loss.source);
}

// The format that all layers' `matrix` has, or nothing if they differ.
std::string CommonFormat(const ModelReport& report, Matrix matrix) {
  std::optional<WeightFormat> common;
  for (const LayerReport& layer : report.layers) {
    if (!layer.matrices[matrix]) continue;
    if (common && *common != layer.matrices[matrix]->format) return "";
    common = layer.matrices[matrix]->format;
  }
  return common ? Name(*common) : "";
}

std::string Describe(const ModelReport& report, const Part& part) {
  const Expected<Matrix> matrix = ParseMatrix(part.key);
  if (!matrix) return std::format("the {}", part.name);
  const std::string format = CommonFormat(report, *matrix);
  return format.empty() ? std::string(part.name) : std::format("{} ({})", part.name, format);
}

std::string Source(const ModelReport& report) {
  std::vector<std::pair<double, const Part*>> ranked;
  for (const Part& part : kParts) {
    if (const auto error = MeanError(report, part)) ranked.emplace_back(Rank(*error), &part);
  }
  std::ranges::stable_sort(ranked, [](auto& a, auto& b) { return a.first > b.first; });
  if (ranked.size() < 2 || ranked[0].first == 0.0) return "";
  return std::format(
      "The largest part comes from {}: quantizing nothing else gives {}{}. Next is {} with {}.",
      Describe(report, *ranked[0].second), Percent(ranked[0].first),
      report.layers.size() == 1 ? "" : " on average", Describe(report, *ranked[1].second),
      Percent(ranked[1].first));
}

// "Q4_1", or of several "Q4_K (60 matrices), Q6_K (30 matrices)".
std::string TypesOf(const SourceReport& source) {
  if (source.types.size() == 1) return source.types.begin()->first;
  std::string text;
  for (const auto& [type, count] : source.types) {
    text += std::format("{}{} ({})", text.empty() ? "" : ", ", type,
                        count == 1 ? "1 matrix" : std::format("{} matrices", count));
  }
  return text;
}

FfnTotals Totals(const ModelReport& report) {
  FfnTotals totals;
  totals.weights = Fp32Bytes(report) / sizeof(float);
  totals.bytes = report.totals.ffn_bytes;
  return totals;
}

}  // namespace

Verdict Judge(const ModelReport& report) {
  return {.loss = Loss(report),
          .cost = Cost(report),
          .source = Source(report),
          .size = SizeVerdict(Totals(report), report.source)};
}

std::optional<size_t> WorstLayer(const ModelReport& report) {
  if (report.layers.empty()) return std::nullopt;
  const auto worst = std::ranges::max_element(
      report.layers, {}, [](const LayerReport& layer) { return Rank(layer.output.relative_l2); });
  return static_cast<size_t>(worst - report.layers.begin());
}

std::optional<double> MeanError(const ModelReport& report, const Part& part) {
  double sum = 0;
  size_t count = 0;
  for (const LayerReport& layer : report.layers) {
    const std::optional<double> error = part.error(layer.attribution);
    if (!error) continue;
    sum += *error;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

std::string FileName(const ModelReport& report) {
  return Printable(std::filesystem::path(report.file).filename().string());
}

uint64_t Fp32Bytes(const ModelReport& report) {
  uint64_t bytes = 0;
  for (const LayerReport& layer : report.layers) {
    for (const auto& matrix : layer.matrices.items) {
      if (matrix) bytes += uint64_t{matrix->rows} * matrix->cols * sizeof(float);
    }
  }
  return bytes;
}

std::string RandomInputsWarning(const ModelReport& report) {
  if (report.calibration_source != "random") return "";
  return "RANDOM INPUTS: no calibration file was given. These errors were measured on random "
         "numbers, "
         "which no model produces; real inputs have outliers and may do far worse. Give "
         "--calibration "
         "FILE for figures to rely on.";
}

std::string SizeVerdict(const FfnTotals& stored, const SourceReport& source) {
  if (stored.bytes == 0) return "";
  const auto bytes = static_cast<double>(stored.bytes);
  const auto fp32 = static_cast<double>(stored.weights) * sizeof(float);
  std::string text = std::format(
      "The feed-forward weights take {} bits each, scales and padding included: {}, {} times less "
      "than FP32's {}.",
      Significant(stored.bits_per_weight()), Size(bytes), Significant(fp32 / bytes), Size(fp32));
  const auto before = static_cast<double>(source.bytes);
  if (source.bytes == 0 || before == fp32) return text;
  return text + std::format(" The source stores them in {} as {}: {} times as much.", Size(before),
                            TypesOf(source), Significant(before / bytes));
}

std::string QuantizedSourceWarning(const SourceReport& source) {
  if (source.quantized == 0) return "";
  size_t all = 0;
  for (const auto& [type, count] : source.types) all += count;
  return std::format(
      "QUANTIZED SOURCE: {} matrices were integers before: {}. Every error here is relative to the "
      "values that the source holds, which are called FP32, and not to the original model. What "
      "the source lost comes on top; quantize the original for figures to rely on.",
      source.quantized == all ? std::format("all {}", all)
                              : std::format("{} of {}", source.quantized, all),
      TypesOf(source));
}

std::string SwapWarning(const ModelReport& report) {
  std::vector<size_t> layers;
  for (const Finding& finding : report.findings) {
    if (finding.kind == FindingKind::kSwappedGateUp) layers.push_back(*finding.layer);
  }
  if (layers.empty()) return "";
  return std::format(
      "GATE AND UP LOOK SWAPPED in layer{} {} of {}: its gate is the checkpoint's up, and its up "
      "the "
      "checkpoint's gate. The model computes something else.",
      layers.size() == 1 ? "" : "s", Ranges(layers), FileName(report));
}

std::vector<std::string> OtherWarnings(const ModelReport& report) {
  std::vector<std::string> others = report.warnings;
  if (report.calibration_source == "random") {
    std::erase_if(others, [](const std::string& w) { return w.starts_with("RANDOM INPUTS:"); });
  }
  return others;
}

}  // namespace sluice
