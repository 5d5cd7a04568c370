// Feed-forward arithmetic in double precision: what blocks are compared with.
#ifndef SLUICE_QUANT_ANALYSIS_REFERENCE_BLOCK_H_
#define SLUICE_QUANT_ANALYSIS_REFERENCE_BLOCK_H_

#include <span>

#include "quant/analysis/double_matrix.h"
#include "sluice/cpu.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"

namespace sluice {

// x·Wᵀ + b: x [t, in], weights [out, in], bias [out] or empty; the result is [t, out]. The weights
// are widened a few rows at a time, so there is never a second copy of them.
DoubleMatrix Linear(const DoubleMatrix& x, MatrixView<const float> weights,
                    std::span<const float> bias, const ThreadPool* pool);

// The formulas of the design's specification, by <cmath>: a few units in the last place of double.
double Activate(Activation activation, double x);
// The same for every entry.
void Activate(Activation activation, DoubleMatrix& x, const ThreadPool* pool);

// The activations x [t, k] as the highway and reference backends' integer kernels see them:
// rounded to f32 (which values that came from f32 are already), quantized, and multiplied by their
// scale. A row with a value beyond f32 becomes NaN.
DoubleMatrix QuantizeActivations(const DoubleMatrix& x, ActivationFormat format,
                                 const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_REFERENCE_BLOCK_H_
