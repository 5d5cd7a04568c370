// A feed-forward block in single precision and at speed, as the model's authors run it. (What
// errors are measured against is quant/analysis/reference_block.h, in double precision.)
#ifndef SLUICE_QUANT_DECODER_FLOAT_BLOCK_H_
#define SLUICE_QUANT_DECODER_FLOAT_BLOCK_H_

#include <cstddef>
#include <functional>

#include "quant/checkpoint/ffn_weights.h"
#include "quant/decoder/decoder.h"
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

// Rows of a stream that go through a block together: what they need beside it is some megabytes.
inline constexpr size_t kBlockRows = 2048;

// Sees what gate and up multiply, and what down multiplies, of consecutive rows of the stream.
using BlockObserver = std::function<void(size_t first_row, MatrixView<const float> input,
                                         MatrixView<const float> hidden)>;

// The feed-forward half of a layer: stream += block(norm(stream)), a few rows at a time.
void AddFloatBlock(const DecoderLayer& layer, const FfnWeights& weights, MatrixView<float> stream,
                   const ThreadPool* pool, const BlockObserver& observe = {});

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_FLOAT_BLOCK_H_
