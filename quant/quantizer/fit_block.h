// A feed-forward block by any method: gate and up first, then down on the hidden vector that they
// give.
#ifndef SLUICE_QUANT_QUANTIZER_FIT_BLOCK_H_
#define SLUICE_QUANT_QUANTIZER_FIT_BLOCK_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quant/checkpoint/ffn_weights.h"
#include "quant/quantizer/fit_matrix.h"
#include "quant/quantizer/loss_moments.h"
#include "quant/quantizer/rescale.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/pack.h"

namespace sluice {

// Which tokens a method may use, and which it is judged on.
enum class Purpose : uint8_t { kFit, kHeldOut, kBoth };

// What `token` of `count` serves for: of every 16 pieces of 1 to 64 consecutive tokens the last is
// held out. Fewer than 16 tokens serve for both.
Purpose PurposeOf(size_t token, size_t count);

// At most `count` of the tokens below `tokens` that serve for `purpose`, evenly spaced.
std::vector<size_t> SampleTokens(size_t tokens, size_t count, Purpose purpose,
                                 const std::function<Purpose(size_t)>& purpose_of);

// A block, and what it was rescaled by: up's rows were multiplied by the factors and down's columns
// divided by them before they were quantized. Without factors nothing was.
struct BlockFit {
  PerMatrix<std::optional<MatrixFit>> matrices;
  std::vector<float> rescale;  // [d_ff], or empty
};

// Used in this order: AddInputs for all tokens; Rescale, if at all; FitInput; AddHidden for the
// same tokens; FitHidden. Only sums over tokens are kept. Rows of x and y are tokens, at most
// kMaxTokens a call.
class BlockFitter {
 public:
  static constexpr size_t kMaxTokens = 2048;

  // `weights` must outlive the fitter.
  BlockFitter(const FfnWeights& weights, const PerMatrix<WeightFormat>& formats,
              const BlockActivations& activations, const FitOptions& options,
              const ThreadPool* pool);

  // x [t, d_model]: what the quantized block will be given, before its activations are rounded.
  // `wanted`, of that shape: gate and up shall give what they give for it in FP32; usually x.
  // `gains` [t], or empty for 1: errors of a token count by its square.
  void AddInputs(MatrixView<const float> x, MatrixView<const float> wanted, Purpose purpose,
                 std::span<const float> gains = {});
  // From here on up and down are those times, and divided by, the factors that ChooseRescale gives.
  // Nothing happens where the options, the formats or rtn rule it out, or the sample is empty.
  Status Rescale(const RescaleSample& sample);

  // Errors: those of FitMatrix, with the matrix's name.
  Status FitInput();

  // The same x and gains, and y [t, d_model], what the block shall give for it.
  void AddHidden(MatrixView<const float> x, MatrixView<const float> y, Purpose purpose,
                 std::span<const float> gains = {});
  Status FitHidden();

  // What the quantized block gives for x, after FitHidden: in f32, so up to rounding what its
  // kernels give.
  void Forward(MatrixView<const float> x, MatrixView<float> y);

  // What was fitted, once; the fitter is used up.
  BlockFit Take() && { return std::move(fit_); }

 private:
  struct Both {
    LossMoments fit;
    LossMoments held_out;
  };

  // A matrix as it is to be quantized.
  const LinearWeights& Exact(Matrix m) const {
    return scaled_.matrices[m].weights.empty() ? weights_.matrices[m] : scaled_.matrices[m];
  }
  Status FitOne(Matrix m, const LossMoments& fit, const LossMoments& held_out);
  MatrixView<float> RoundedHidden(MatrixView<const float> x);
  void Moved(Matrix m, const LossMoments& inputs, LossMoments& moments) const;

  const FfnWeights& weights_;
  FfnWeights scaled_;  // up and down, if rescaled
  PerMatrix<WeightFormat> formats_;
  BlockActivations activations_;
  FitOptions options_;
  const ThreadPool* pool_;
  FfnWeights rounded_;  // dequantized, as far as fitted
  BlockFit fit_;
  Both inputs_;        // shift: Σ (wanted − x)·xᵀ [d_model, d_model]
  LossMoments drift_;  // held-out Σ (wanted − x)·(wanted − x)ᵀ
  Both hidden_;
  std::vector<float> x_, difference_, hidden_rows_, scratch_, y_;
};

// All of it on captured inputs x [t, d_model]: the block shall give for them what it gives in FP32.
Expected<BlockFit> FitCalibrated(const FfnWeights& weights, const PerMatrix<WeightFormat>& formats,
                                 const BlockActivations& activations, MatrixView<const float> x,
                                 const FitOptions& options, const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_FIT_BLOCK_H_
