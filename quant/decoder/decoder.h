// A decoder-only model in FP32, run layer by layer over any number of tokens: what a block's real
// inputs are, and what a change of the blocks does to the model's predictions.
//
// The caller holds the residual stream, [tokens, d_model], and one layer at a time:
//
//   stream = Embed(ids)
//   for each layer:  AddAttention(stream)               the layer's attention half
//                    x = BlockInput(stream)             what gate and up multiply
//                    y = any feed-forward block of x    (float_block.h, or a packed file's)
//                    AddBlockOutput(y, stream)
//   losses.h: perplexity and divergence of one or several streams
//
// Any number of streams may go through one loaded layer: the exact model and quantized ones beside
// each other.
#ifndef SLUICE_QUANT_DECODER_DECODER_H_
#define SLUICE_QUANT_DECODER_DECODER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "quant/decoder/decoder_config.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/matrix_view.h"

namespace sluice {

// The attention half of a layer and its norms, in memory. The feed-forward half is the caller's:
// Checkpoint::Load.
class DecoderLayer {
 public:
  DecoderLayer(DecoderLayer&&) noexcept;
  DecoderLayer& operator=(DecoderLayer&&) noexcept;
  ~DecoderLayer();

  // stream += attention(norm(stream)), window by window; `windows` are lengths that add up to the
  // stream's rows (Tokens::windows). Gemma's norm after the attention included. Scratch: some
  // thousand tokens' q, k and v, whatever the stream's length.
  void AddAttention(std::span<const size_t> windows, MatrixView<float> stream,
                    const ThreadPool* pool) const;

  // x = norm(stream), both [t, d_model]: the input of gate and up. Token by token, so any part of
  // the stream may be given.
  void BlockInput(MatrixView<const float> stream, MatrixView<float> x,
                  const ThreadPool* pool) const;

  // stream += y, the block's output, both [t, d_model]; Gemma 2 and 3 norm y first. y is
  // overwritten.
  void AddBlockOutput(MatrixView<float> y, MatrixView<float> stream, const ThreadPool* pool) const;

  // Changes y, the block's output, so that AddBlockOutput would add part · (to − from) more to a
  // stream, all [t, d_model]. Where y is normed this holds up to the norm of the whole row, and a
  // channel whose norm weight w is less than typical, w² < m = mean(w²), gets w² / m of it: all of
  // it would take so much of y that the norm of the row is the channel's. No row of y changes by
  // more than `most` of its own length.
  void MoveOutput(MatrixView<const float> to, MatrixView<const float> from, float part, float most,
                  MatrixView<float> y, const ThreadPool* pool) const;

  // Whether the block's output is normed before it is added, as in Gemma 2 and 3.
  bool norms_output() const;
  // By what AddBlockOutput multiplies row y before the norm's weights: 1, or 1 / rms(y).
  float OutputGain(std::span<const float> y) const;

 private:
  friend class Decoder;
  class Impl;
  explicit DecoderLayer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Decoder {
 public:
  // As Checkpoint::Open, but every tensor of the model must be there. Reads no weights. Errors: see
  // ReadDecoderConfig; tensors that are missing, unexpected or of another shape, by name.
  static Expected<Decoder> Open(const std::string& path, const std::optional<std::string>& config);
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;
  ~Decoder();

  const Checkpoint& checkpoint() const;  // the feed-forward blocks, one for each layer
  const DecoderConfig& config() const;
  size_t layers() const;  // numbered from 0
  size_t d_model() const;
  size_t vocabulary() const;

  // The stream before the first layer: stream [ids.size(), d_model]. Ids are in [0, vocabulary).
  // Errors: NaN or Inf in the embedding.
  Status Embed(std::span<const int32_t> ids, MatrixView<float> stream) const;

  // Reads the layer's attention and norms; about 4·d_model² floats.
  Expected<DecoderLayer> Layer(size_t layer) const;

  // The norm after the last layer, x = norm(stream), both [t, d_model].
  void FinalNorm(MatrixView<const float> stream, MatrixView<float> x, const ThreadPool* pool) const;

  // Calls `use` with consecutive slices of the output matrix, weights [count, d_model] of the
  // tokens first, first + 1, …; logits are CapLogits(x·weightsᵀ). The whole matrix is never in
  // memory. Errors: NaN or Inf in it.
  using VocabularySlice = std::function<void(size_t first, MatrixView<const float> weights)>;
  Status ForVocabulary(const VocabularySlice& use) const;
  // The number of calls that ForVocabulary makes.
  size_t vocabulary_slices() const;
  // Gemma 2's soft cap of logits, in place; nothing in other families.
  void CapLogits(std::span<float> logits) const;

  class Impl;

 private:
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_DECODER_H_
