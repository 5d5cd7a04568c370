// A feed-forward block in single precision and at speed, as the model's authors run it. (What
// errors are measured against is quant/analysis/reference_block.h, in double precision.)
#ifndef SLUICE_QUANT_DECODER_FLOAT_BLOCK_H_
#define SLUICE_QUANT_DECODER_FLOAT_BLOCK_H_

#include "quant/checkpoint/ffn_weights.h"
#include "sluice/cpu.h"
#include "sluice/matrix_view.h"

namespace sluice {

// hidden = act(x·gateᵀ + bg) ⊙ (x·upᵀ + bu), or act(x·upᵀ + bu) without a gate: x [t, d_model],
// hidden [t, d_ff]. `scratch`, as hidden, is for the gate; not used without one.
void BlockHidden(const FfnWeights& weights, MatrixView<const float> x, MatrixView<float> hidden,
                 MatrixView<float> scratch, const ThreadPool* pool);

// y = hidden·downᵀ + bd, [t, d_model].
void BlockOutput(const FfnWeights& weights, MatrixView<const float> hidden, MatrixView<float> y,
                 const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_FLOAT_BLOCK_H_
