// Parameters, bytes and operations of feed-forward blocks.
#ifndef SLUICE_QUANT_ANALYSIS_ACCOUNTING_H_
#define SLUICE_QUANT_ANALYSIS_ACCOUNTING_H_

#include <cstdint>
#include <vector>

namespace sluice {

// Bits per weight: 8 · stored bytes, scales and padding included, over out · in.
constexpr double BitsPerWeight(uint64_t bytes, uint64_t weights) {
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
}

// What a number of blocks come to.
struct FfnTotals {
  uint64_t weights = 0;  // entries of the matrices
  uint64_t biases = 0;
  uint64_t bytes = 0;  // of the stored matrices, scales and padding included, biases excluded

  void AddMatrix(uint64_t out, uint64_t in, uint64_t stored_bytes, bool has_bias) {
    weights += out * in;
    biases += has_bias ? out : 0;
    bytes += stored_bytes;
  }

  constexpr uint64_t parameters() const { return weights + biases; }
  // A multiply-add counts as 2; additions of biases and the activation are not counted.
  constexpr uint64_t flops_per_token() const { return 2 * weights; }
  constexpr double bits_per_weight() const { return BitsPerWeight(bytes, weights); }
};

// Of the layers of a checkpoint (SourceLayer) or of a packed file (LayerInfo).
template <class Layer>
FfnTotals Account(const std::vector<Layer>& layers) {
  FfnTotals totals;
  for (const Layer& layer : layers) {
    for (const auto& matrix : layer.matrices.items) {
      if (!matrix) continue;
      totals.AddMatrix(matrix->rows, matrix->cols, matrix->bytes, !matrix->bias_name.empty());
    }
  }
  return totals;
}

// Entries of the matrices of one block: 2·d·m, or 3·d·m with a gate.
constexpr uint64_t FfnWeightCount(uint64_t d, uint64_t m, bool gated) {
  return (gated ? 3 : 2) * d * m;
}

// Entries of the query, key, value and output matrices beside it, 4·d², where all heads have keys
// of their own: the measure of a block's share in its layer.
constexpr uint64_t AttentionWeightCount(uint64_t d) { return 4 * d * d; }

// The hidden width at which a gated block has as many weights as the usual ungated one of width 4d:
// 8d/3, to the nearest integer.
constexpr uint64_t MatchedGatedWidth(uint64_t d) { return (8 * d + 1) / 3; }

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_ACCOUNTING_H_
