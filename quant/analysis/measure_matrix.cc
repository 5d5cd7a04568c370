#include "quant/analysis/measure_matrix.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <format>

#include "quant/analysis/metrics.h"
#include "quant/analysis/weight_faults.h"
#include "quant/quantizer/quantizer.h"
#include "quant/quantizer/rescale.h"

namespace sluice {
namespace {

// Blocks with scale 0 whose weights are not all zero, but below what a scale can hold.
struct LostBlocks {
  size_t count = 0;
  size_t first_row = 0;
};

LostBlocks FindLostBlocks(Matrix matrix, MatrixView<const float> trained,
                          const QuantizedMatrix& stored, std::span<const float> rescale) {
  LostBlocks lost;
  for (size_t i = 0; i < stored.scales.size(); ++i) {
    if (stored.scales[i] != 0.0f) continue;
    const size_t row = i / stored.blocks();
    const size_t begin = i % stored.blocks() * stored.block();
    const size_t count = std::min(stored.block(), stored.cols - begin);
    const auto weights = trained.row(row).subspan(begin, count);
    if (IsAllZero({weights.data(), 1, count})) continue;
    // Others are no loss of quantization but a fault: FindWeightFaults names them.
    bool small = true;
    for (size_t c = 0; c < count; ++c) {
      const float scaled = weights[c] * RescaleAt(matrix, rescale, row, begin + c);
      small = small && std::fabs(scaled) < kMinWeightAmax;
    }
    if (!small) continue;
    if (lost.count++ == 0) lost.first_row = row;
  }
  return lost;
}

}  // namespace

MatrixMeasurement MeasureMatrix(Matrix matrix, MatrixView<const float> trained,
                                const QuantizedMatrix& stored, std::span<const float> restored,
                                std::span<const float> rescale) {
  assert(trained.rows == stored.rows && trained.cols == stored.cols);
  ErrorSums errors;
  for (size_t r = 0; r < trained.rows; ++r) {
    errors.Add(Compare(trained.row(r), restored.subspan(r * trained.cols, trained.cols)));
  }
  MatrixMeasurement measurement;
  MatrixReport& report = measurement.report;
  report.format = report.requested = stored.format;
  report.rows = stored.rows;
  report.cols = stored.cols;
  report.weight_relative_rmse = errors.relative_l2();
  report.weight_max_abs_error = errors.max_abs_error();
  report.zero_blocks = CountZeroBlocks(stored);
  report.histogram = CountWeights(trained, restored);
  measurement.findings = FindWeightFaults(matrix, trained, stored, restored, rescale);

  if (const LostBlocks lost = FindLostBlocks(matrix, trained, stored, rescale); lost.count != 0) {
    measurement.warnings.push_back(
        std::format("{}: {} blocks of weights below {} became zeros, the first in row {}",
                    Name(matrix), lost.count, kMinWeightAmax, lost.first_row));
  }
  return measurement;
}

}  // namespace sluice
