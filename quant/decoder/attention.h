// Causal attention with grouped heads over windows of tokens.
#ifndef SLUICE_QUANT_DECODER_ATTENTION_H_
#define SLUICE_QUANT_DECODER_ATTENTION_H_

#include <cstddef>
#include <span>
#include <vector>

#include "sluice/cpu.h"
#include "sluice/matrix_view.h"

namespace sluice {

struct AttentionShape {
  size_t heads = 0;
  size_t kv_heads = 0;
  size_t head_dim = 0;
  double scale = 1;   // of q·k
  double cap = 0;     // scores become cap · tanh(score / cap); 0: none
  size_t window = 0;  // a token sees itself and the window − 1 before it; 0: all before it
};

// cos and sin of the angles of positions 0, 1, …: [positions, head_dim / 2] each.
class RopeTable {
 public:
  RopeTable(std::span<const float> frequencies, size_t positions);

  // Rotates the pairs (i, i + head_dim / 2) of one head, in place.
  void Rotate(size_t position, std::span<float> head) const;

 private:
  size_t half_;
  std::vector<float> cosines_, sines_;
};

// out = softmax(scores(q, k))·v, window by window: q [t, heads · head_dim], k and v
// [t, kv_heads · head_dim], out like q. `windows` are lengths that add up to t. Never holds more
// scores than a few query rows of one head per thread.
void Attend(const AttentionShape& shape, std::span<const size_t> windows, MatrixView<const float> q,
            MatrixView<const float> k, MatrixView<const float> v, MatrixView<float> out,
            const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_ATTENTION_H_
