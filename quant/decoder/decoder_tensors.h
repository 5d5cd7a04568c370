// A decoder's tensors outside its feed-forward blocks, found by name.
#ifndef SLUICE_QUANT_DECODER_DECODER_TENSORS_H_
#define SLUICE_QUANT_DECODER_DECODER_TENSORS_H_

#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "quant/checkpoint/tensor_source.h"
#include "quant/decoder/decoder_config.h"
#include "sluice/error.h"

namespace sluice {

// A weight and its bias; null: none. Into the checkpoint's TensorSource.
struct LinearTensors {
  const SourceTensor* weight = nullptr;
  const SourceTensor* bias = nullptr;
};

struct LayerTensors {
  LinearTensors q, k, v, output;
  const SourceTensor* q_norm = nullptr;  // null: the family has none
  const SourceTensor* k_norm = nullptr;
  const SourceTensor* attention_norm = nullptr;
  const SourceTensor* post_attention_norm = nullptr;
  const SourceTensor* block_norm = nullptr;
  const SourceTensor* post_block_norm = nullptr;
};

struct DecoderTensors {
  const SourceTensor* embedding = nullptr;      // [vocabulary, d_model]
  const SourceTensor* output = nullptr;         // likewise; the embedding if they are tied
  const SourceTensor* final_norm = nullptr;     // [d_model]
  const SourceTensor* rope_divisors = nullptr;  // [head_dim / 2], GGUF's Llama 3; null: none
  std::vector<LayerTensors> layers;
};

// Errors: a tensor that is missing, of a type that cannot be read, or of another shape than the
// configuration says, or that is there although the family does not use it; layers that are not
// numbered 0, 1, ….
Expected<DecoderTensors> FindDecoderTensors(const Checkpoint& checkpoint,
                                            const DecoderConfig& config);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_DECODER_TENSORS_H_
