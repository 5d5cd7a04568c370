// Blocks of random weights, and what they compute in double precision.
#ifndef SLUICE_BENCH_BLOCK_H_
#define SLUICE_BENCH_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/options.h"
#include "bench/page_buffer.h"
#include "bench/shapes.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/pack.h"
#include "src/format/quantized_matrix.h"

namespace sluice::bench {

// A gated SiLU block in plain form, which every library turns into its own. Scales differ from row
// to row and block to block, and bf16 as well as fp16 hold them exactly: so all libraries compute
// with the same weights.
struct PlainBlock {
  size_t d_model = 0;
  size_t d_ff = 0;
  BlockFormat format;
  PerMatrix<QuantizedMatrix> matrices;  // [out, in]

  // Multiplications and additions for each token.
  double operations_per_token() const {
    return 6.0 * static_cast<double>(d_model) * static_cast<double>(d_ff);
  }
};
PlainBlock RandomBlock(const Shape& shape, const BlockFormat& format);

// Tokens repeat after this many, so that the results of any number of them can be checked against
// few computed in double precision.
inline constexpr size_t kDistinctTokens = 4;
// [tokens, d_model], row-major, normally distributed.
std::vector<float> RandomTokens(size_t tokens, size_t d_model);

// down·(SiLU(gate·x) ⊙ (up·x)) with integer · scale weights, x and all sums in double precision.
struct ExactResult {
  std::vector<double> y;  // [tokens, d_model]
  // The relative L2 error that int8 activations with one scale a token are expected to make in the
  // worst of these tokens. Rounding to steps of amax / 127 makes an error of a step / √12; that of
  // x counts through gate and through up, that of the hidden vector once.
  double row_error = 0;
};
// x has kDistinctTokens rows; so has the result.
ExactResult Exact(const PlainBlock& block, std::span<const float> x);

// The largest relative L2 error of a token's result: token t of y against row t mod kDistinctTokens
// of `exact`. Infinite where y has a NaN.
double LargestError(MatrixView<const float> y, std::span<const double> exact);

// The block in sluice's packed form, `copies` times, one after the other.
class PackedRing {
 public:
  static Expected<PackedRing> Create(const PlainBlock& block, size_t copies, PageKind pages);

  const std::vector<BlockView>& views() const { return views_; }
  uint64_t bytes_each() const { return bytes_; }  // weights and scales, padding included

 private:
  PageBuffer memory_;
  std::vector<BlockView> views_;
  uint64_t bytes_ = 0;
};
// What a copy takes, without making one.
Expected<uint64_t> PackedBytes(const Shape& shape, WeightFormat format);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_BLOCK_H_
