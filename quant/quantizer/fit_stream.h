// Quantizing a whole decoder on text: each block on the inputs that the quantized blocks before it
// produce.
#ifndef SLUICE_QUANT_QUANTIZER_FIT_STREAM_H_
#define SLUICE_QUANT_QUANTIZER_FIT_STREAM_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "quant/decoder/decoder.h"
#include "quant/decoder/tokens.h"
#include "quant/quantizer/fit_block.h"
#include "quant/quantizer/fit_matrix.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "src/format/pack.h"

namespace sluice {

struct StreamOptions {
  FitOptions fit;
  // How far targets move from what the FP32 block gives for the quantized model's input to what it
  // gives for the FP32 model's, as in GPTAQ (Li, Yin, Lee, Panda, 2025, arXiv:2504.02692): at 0 a
  // block does not know of the errors before it, at 1 it must undo all of them, which its inputs
  // need not allow, and learns the calibration text by heart.
  float move = 0.5f;
  // What part of the stream's error so far, FP32 minus quantized before the block, down's output is
  // asked to take away besides. Down learns what of it follows from the hidden vector; most does
  // not, and asking for all would be learning by heart.
  float repair = 0.5f;
  // For that, no token's output is asked to change by more than this part of its own length. Where
  // a few tokens carry values that no other has (massive activations), their errors are as large,
  // and what down learns of them is no use to any other.
  float most_repair = 0.5f;
};

// The two residual streams, [tokens, d_model], between layers: all that is kept from one layer to
// the next.
struct Streams {
  std::vector<float> exact;
  std::vector<float> rounded;
};

// One layer at a time is in memory: its attention and block in FP32, the block's moments, and the
// two streams.
class StreamFitter {
 public:
  // `decoder` and `tokens` must outlive it. Errors: NaN or Inf in the embedding.
  static Expected<StreamFitter> Create(const Decoder& decoder, const Tokens& tokens,
                                       const StreamOptions& options, const ThreadPool* pool);

  // Layers in order, each once: Quantize, or Skip for one that stays in FP32. Errors: those of
  // Decoder::Layer and FitMatrix.
  Expected<BlockFit> Quantize(const FfnWeights& weights, const PerMatrix<WeightFormat>& formats,
                              const BlockActivations& activations);
  Status Skip(const FfnWeights& weights);

  size_t next_layer() const { return next_; }
  const Streams& streams() const { return streams_; }
  // Goes on after layer `next` − 1. Errors: streams of another size.
  Status Resume(size_t next, Streams streams);

 private:
  struct Piece;
  struct Sample;

  StreamFitter(const Decoder& decoder, const Tokens& tokens, const StreamOptions& options,
               const ThreadPool* pool);
  Expected<DecoderLayer> Attend();
  template <class Fn>
  void ForPieces(Fn use);
  void RunExact(const FfnWeights& weights, MatrixView<const float> x, MatrixView<float> y);

  void NoteGains(const DecoderLayer& layer, const FfnWeights& weights, MatrixView<const float> x,
                 std::span<float> gains);
  Sample SampleInputs(const DecoderLayer& layer, Purpose purpose);
  size_t PieceSize() const;

  const Decoder& decoder_;
  const Tokens& tokens_;
  StreamOptions options_;
  const ThreadPool* pool_;
  Streams streams_;
  size_t next_ = 0;
  std::vector<float> gains_;  // by token; empty where the layer has no norm after the block
  std::vector<float> x_exact_, x_, y_exact_, y_, hidden_, scratch_;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_FIT_STREAM_H_
