// Stored weights that quantizing the checkpoint's cannot have given.
#ifndef SLUICE_QUANT_ANALYSIS_WEIGHT_FAULTS_H_
#define SLUICE_QUANT_ANALYSIS_WEIGHT_FAULTS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "quant/analysis/finding.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

// Columns that count as a block where the format has none.
inline constexpr size_t kFaultBlock = 32;

// Of one matrix, without the layer; at most three of each kind, the first of them with their
// number. `restored` and `rescale` are MeasureMatrix's. What rounding can do is judged as the
// weights were rounded, that is rescaled; values are in units of the checkpoint.
//
// outlier_weight: |ŵ − w| exceeds 3 times the largest |w| of its block (of its row, where the
// format has no blocks): a quantizer may double a weight at most. Also, as a warning, a |w| that is
// 8 times the matrix's next largest and 25 times its root mean square.
// zero_block: all ŵ of a block are 0, although the largest |w| is 1.5 steps of the scale, or the
// scale is 0 and |w| is not below kMinWeightAmax. As information: blocks of zeros in both.
// zero_matrix: all w are 0.
// unrelated_weights: the cosine of ŵ and w is below 1/2 in more than half of the rows.
std::vector<Finding> FindWeightFaults(Matrix matrix, MatrixView<const float> trained,
                                      const QuantizedMatrix& stored,
                                      std::span<const float> restored,
                                      std::span<const float> rescale);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_WEIGHT_FAULTS_H_
