// What a loaded layer holds, and how it is loaded.
#ifndef SLUICE_QUANT_DECODER_DECODER_LAYER_H_
#define SLUICE_QUANT_DECODER_DECODER_LAYER_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "quant/checkpoint/ffn_weights.h"
#include "quant/decoder/attention.h"
#include "quant/decoder/decoder.h"
#include "quant/decoder/decoder_config.h"
#include "quant/decoder/decoder_tensors.h"
#include "quant/decoder/norm.h"
#include "sluice/error.h"

namespace sluice {

// A norm of the checkpoint; its offset is added here.
Expected<RmsNorm> LoadNorm(const SourceTensor& tensor, const DecoderConfig& config);

class DecoderLayer::Impl {
 public:
  // `frequencies` belong to the Decoder, which must outlive this.
  static Expected<std::unique_ptr<Impl>> Load(const LayerTensors& tensors,
                                              const DecoderConfig& config, size_t layer,
                                              std::span<const float> frequencies);

  void AddAttention(std::span<const size_t> windows, MatrixView<float> stream,
                    const ThreadPool* pool) const;
  const RmsNorm& block_norm() const { return block_norm_; }
  const RmsNorm* post_block_norm() const { return post_block_norm_ ? &*post_block_norm_ : nullptr; }

 private:
  void AttendGroup(std::span<const size_t> windows, MatrixView<float> stream, const RopeTable& rope,
                   const ThreadPool* pool) const;
  // The norms of q's and k's heads, and their rotation.
  void PrepareHeads(std::span<const size_t> windows, const RopeTable& rope, MatrixView<float> qkv,
                    const ThreadPool* pool) const;

  AttentionShape shape_;
  std::span<const float> frequencies_;
  LinearWeights qkv_;  // the rows of q, then k, then v
  LinearWeights output_;
  RmsNorm attention_norm_;
  RmsNorm block_norm_;
  std::optional<RmsNorm> q_norm_, k_norm_;
  std::optional<RmsNorm> post_attention_norm_;
  std::optional<RmsNorm> post_block_norm_;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_DECODER_LAYER_H_
