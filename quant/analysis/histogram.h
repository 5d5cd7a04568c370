// How often values occur, in bins of equal width.
#ifndef SLUICE_QUANT_ANALYSIS_HISTOGRAM_H_
#define SLUICE_QUANT_ANALYSIS_HISTOGRAM_H_

#include <array>
#include <cstdint>
#include <span>

#include "sluice/matrix_view.h"

namespace sluice {

// Odd, so that zero is in the middle of a bin.
inline constexpr size_t kHistogramBins = 41;

// A matrix's weights before and after quantization. The bins divide [−limit, limit], limit being
// four times the root of the mean square before; what lies beyond is counted in the outermost bins,
// so that one outlier does not squeeze all others into one bin. All zero before: limit is 0, and
// everything is in the middle.
struct WeightHistogram {
  double limit = 0;
  std::array<uint64_t, kHistogramBins> before = {};
  std::array<uint64_t, kHistogramBins> after = {};
};

// `after` has the values of `before`'s matrix, row by row. Neither holds NaN.
WeightHistogram CountWeights(MatrixView<const float> before, std::span<const float> after);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_HISTOGRAM_H_
