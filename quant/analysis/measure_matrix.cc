#include "quant/analysis/measure_matrix.h"

#include <algorithm>
#include <cassert>
#include <format>

#include "quant/analysis/metrics.h"
#include "quant/quantizer/quantizer.h"

namespace sluice {
namespace {

// Blocks with scale 0 whose weights are not all zero.
struct LostBlocks {
  size_t count = 0;
  size_t first_row = 0;
};

LostBlocks FindLostBlocks(MatrixView<const float> trained, const QuantizedMatrix& stored) {
  LostBlocks lost;
  for (size_t i = 0; i < stored.scales.size(); ++i) {
    if (stored.scales[i] != 0.0f) continue;
    const size_t row = i / stored.blocks();
    const size_t begin = i % stored.blocks() * stored.block();
    const size_t count = std::min(stored.block(), stored.cols - begin);
    if (IsAllZero({trained.row(row).data() + begin, 1, count})) continue;
    if (lost.count++ == 0) lost.first_row = row;
  }
  return lost;
}

}  // namespace

MatrixMeasurement MeasureMatrix(Matrix matrix, MatrixView<const float> trained,
                                const QuantizedMatrix& stored, std::span<const float> dequantized) {
  assert(trained.rows == stored.rows && trained.cols == stored.cols);
  ErrorSums errors;
  for (size_t r = 0; r < trained.rows; ++r) {
    errors.Add(Compare(trained.row(r), dequantized.subspan(r * trained.cols, trained.cols)));
  }
  MatrixMeasurement measurement;
  MatrixReport& report = measurement.report;
  report.format = report.requested = stored.format;
  report.rows = stored.rows;
  report.cols = stored.cols;
  report.weight_relative_rmse = errors.relative_l2();
  report.weight_max_abs_error = errors.max_abs_error();
  report.zero_blocks = CountZeroBlocks(stored);

  const LostBlocks lost = FindLostBlocks(trained, stored);
  if (IsAllZero(trained)) {
    measurement.warnings.push_back(
        std::format("{}: all weights are zero in the checkpoint", Name(matrix)));
  } else if (lost.count != 0) {
    measurement.warnings.push_back(
        std::format("{}: {} blocks of weights below {} became zeros, the first in row {}",
                    Name(matrix), lost.count, kMinWeightAmax, lost.first_row));
  }
  return measurement;
}

}  // namespace sluice
