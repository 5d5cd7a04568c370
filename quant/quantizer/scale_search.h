// Scales that are worth a try for a block of weights, and the best of them for weights that matter
// by how often their inputs are large.
#ifndef SLUICE_QUANT_QUANTIZER_SCALE_SEARCH_H_
#define SLUICE_QUANT_QUANTIZER_SCALE_SEARCH_H_

#include <span>

#include "quant/quantizer/loss_moments.h"
#include "sluice/cpu.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

// What the weight of largest magnitude may become, in units of the scale. int4 has one integer more
// on its negative side than on its positive one, so that the scale's sign makes a difference.
std::span<const float> ExtremeMultiples(WeightType type);

// A scale as `format` stores it with which `extreme` is about `multiple` times it; 0 if that is
// below what quantizers use.
float CandidateScale(float extreme, float multiple, WeightFormat format);

// Rounds each weight to the nearest, with the scale of each block (or row) that minimises
// Σ_k H_kk·(w_k − scale·q_k)², H_kk being the second moment of the input that meets w_k. Searched
// among multiples of the largest weight and refined by least squares for fixed integers; the scale
// of QuantizeRtn is among the candidates, so by this measure no block is worse than there. `matrix`
// has QuantizeRtn's result, which is replaced where a better scale is found.
void SearchScales(MatrixView<const float> weights, const LossMoments& moments,
                  QuantizedMatrix& matrix, const ThreadPool* pool);
// The same for H_kk alone, `energy` [n].
void SearchScales(MatrixView<const float> weights, std::span<const float> energy,
                  QuantizedMatrix& matrix, const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_SCALE_SEARCH_H_
