#include "quant/analysis/histogram.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace sluice {
namespace {

constexpr double kLimitInRms = 4;

size_t BinOf(double value, double limit) {
  if (limit == 0) return kHistogramBins / 2;
  const double bin = (value / limit + 1) / 2 * static_cast<double>(kHistogramBins);
  return static_cast<size_t>(std::clamp(bin, 0.0, static_cast<double>(kHistogramBins - 1)));
}

}  // namespace

WeightHistogram CountWeights(MatrixView<const float> before, std::span<const float> after) {
  assert(after.size() == before.rows * before.cols);
  double squares = 0;
  for (size_t r = 0; r < before.rows; ++r) {
    for (const float w : before.row(r)) squares += static_cast<double>(w) * static_cast<double>(w);
  }
  WeightHistogram histogram;
  histogram.limit = kLimitInRms * std::sqrt(squares / static_cast<double>(after.size()));
  for (size_t r = 0; r < before.rows; ++r) {
    for (const float w : before.row(r)) ++histogram.before[BinOf(w, histogram.limit)];
  }
  for (const float w : after) ++histogram.after[BinOf(w, histogram.limit)];
  return histogram;
}

}  // namespace sluice
