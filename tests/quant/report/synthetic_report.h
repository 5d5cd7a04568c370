// Reports with figures that can be told apart, for the tests of their forms.
#ifndef SLUICE_TESTS_QUANT_REPORT_SYNTHETIC_REPORT_H_
#define SLUICE_TESTS_QUANT_REPORT_SYNTHETIC_REPORT_H_

#include <cmath>
#include <cstddef>

#include "quant/analysis/block_report.h"

namespace sluice::test {

inline MatrixReport SyntheticMatrix(WeightFormat format, size_t rows, size_t cols, double rmse) {
  WeightHistogram histogram = {.limit = 0.4};
  for (size_t i = 0; i < kHistogramBins; ++i) {
    histogram.before[i] = 100 * i * (kHistogramBins - i);
    histogram.after[i] = i % 4 == 0 ? 4 * histogram.before[i] : 0;
  }
  return {.format = format,
          .requested = format,
          .method = "rtn",
          .requested_method = "rtn",
          .rows = rows,
          .cols = cols,
          .bits_per_weight = format.type == WeightType::kInt8 ? 8.5 : 4.5,
          .weight_relative_rmse = rmse,
          .weight_max_abs_error = rmse / 4,
          .zero_blocks = 0,
          .histogram = histogram};
}

inline LayerReport SyntheticLayer(size_t layer, size_t d, size_t m, bool gated) {
  const double wave = 1 + 0.4 * std::sin(0.9 * static_cast<double>(layer));
  const WeightFormat int4 = {WeightType::kInt4, 32};
  LayerReport report;
  report.layer = layer;
  report.tokens = 256;
  report.input_activations = ActivationFormat::kBlock;
  report.hidden_activations = ActivationFormat::kBlock;
  if (gated) report.matrices[Matrix::kGate] = SyntheticMatrix(int4, m, d, 0.091 * wave);
  report.matrices[Matrix::kUp] = SyntheticMatrix(int4, m, d, 0.092 * wave);
  report.matrices[Matrix::kDown] = SyntheticMatrix({WeightType::kInt8, 32}, d, m, 0.006 * wave);
  if (gated) report.attribution.matrices[Matrix::kGate] = 0.052 * wave;
  report.attribution.matrices[Matrix::kUp] = 0.083 * wave;
  report.attribution.matrices[Matrix::kDown] = 0.0058 * wave;
  report.attribution.input_activations = 0.0071;
  report.attribution.hidden_activations = 0.0092 * wave;
  report.attribution.all = 0.099 * wave;
  report.output = {.relative_l2 = 0.099 * wave,
                   .sqnr_db = -20 * std::log10(0.099 * wave),
                   .cosine_mean = 0.9951,
                   .cosine_min = 0.9832,
                   .max_abs_error = 0.314,
                   .worst_token = 7 + layer};
  if (gated) report.interaction = {.together = 0.098 * wave, .product = 0.004, .cosine = 0.02};
  report.worst_tokens = {{.token = 7 + layer, .relative_l2 = 0.25 * wave, .share = 0.125}};
  report.worst_neurons = {
      {.neuron = 1234, .share = 0.25 * wave, .key = 0.2 * wave, .value = 0.05 * wave, .token = 3}};
  report.peaks = {{ActivationSite::kOutput, 5, 321, 1234.5, 987.0, 12.0}};
  return report;
}

inline ModelReport SyntheticReport(size_t layers, bool gated = true) {
  ModelReport report;
  report.model = "models/SmolLM2-135M";
  report.file = "smol.sluice.safetensors";
  report.calibration_source = "calibration.safetensors";
  report.calibration_tokens = 256;
  report.cpu = "Some CPU @ 2.10GHz";
  report.backend = "highway (AVX3_DL)";
  double sum = 0;
  for (size_t i = 0; i < layers; ++i) {
    report.layers.push_back(SyntheticLayer(i, 576, 1536, gated));
    const double error = report.layers.back().output.relative_l2;
    sum += error;
    report.totals.relative_l2_max = std::max(report.totals.relative_l2_max, error);
  }
  report.totals.relative_l2_mean = layers == 0 ? 0 : sum / static_cast<double>(layers);
  report.totals.bits_per_weight = 5.8333;
  report.totals.ffn_bytes = static_cast<uint64_t>(layers) * 1935360;
  return report;
}

}  // namespace sluice::test

#endif  // SLUICE_TESTS_QUANT_REPORT_SYNTHETIC_REPORT_H_
