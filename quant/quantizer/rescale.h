// Up's rows and down's columns rescaled against each other.
//
// A gated block, y = (act(x·gate) ⊙ (x·up))·down, is linear in up: with row j of up times f_j and
// column j of down divided by f_j it computes the same, whatever the positive factors f. But a
// column of down shares its scales with its neighbours, and so does the hidden value that it
// multiplies: where they are alike, less is lost. It is the migration between activations and
// weights of SmoothQuant (Xiao et al. 2022, arXiv:2211.10438) and AWQ (Lin et al. 2023,
// arXiv:2306.00978), here inside the block, where it costs nothing at run time.
#ifndef SLUICE_QUANT_QUANTIZER_RESCALE_H_
#define SLUICE_QUANT_QUANTIZER_RESCALE_H_

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "quant/checkpoint/ffn_weights.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/pack.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

// f_j = (root mean square of down's column j)^column / (root mean square of h_j)^hidden, over the
// geometric mean of that in the group of neurons that share a scale.
struct RescaleRule {
  double hidden = 0;
  double column = 0;
};

// What is tried, besides no rescaling. On SmolLM2-135M the second or third is best in int4 blocks,
// the last where activations have one scale a token.
inline constexpr std::array<RescaleRule, 4> kRescaleRules = {
    {{0, 0.5}, {0, 1}, {0.25, 0.75}, {0.5, 0.5}}};

// Whether a block of these formats is worth it: gated, up and down quantized. Float formats are
// kept as they are.
bool CanRescale(bool gated, const PerMatrix<WeightFormat>& formats);

// The factors by a rule: values of bf16 from 1/64 to 64. `down` is [d_model, d_ff], `energy` [d_ff]
// the mean of h_j², `group` the number of neurons that share a scale.
std::vector<float> RescaleFactors(MatrixView<const float> down, std::span<const float> energy,
                                  size_t group, RescaleRule rule);

// The inputs of some tokens, rows of [t, d_model], for choosing between rules: those whose hidden
// vectors a rule may use, and others, on which rules are judged.
struct RescaleSample {
  MatrixView<const float> fit;
  MatrixView<const float> held_out;
  std::span<const float> gains;  // of held_out, by which a token's error counts; empty: 1
};
inline constexpr size_t kRescaleTokens = 1024;  // of each that are worth having

// The factors of the rule with the least error of the block's output on the held-out tokens, with
// down rounded by mse and the hidden vector as `activations` says, gate and up exact; every fourth
// output is looked at. Empty where no rule is better than none. Errors: those of QuantizeRtn.
Expected<std::vector<float>> ChooseRescale(const FfnWeights& weights,
                                           const PerMatrix<WeightFormat>& formats,
                                           const BlockActivations& activations,
                                           const RescaleSample& sample, const ThreadPool* pool);

// Matrix m of a checkpoint as a rescaled file stores it: up's rows and bias times the factors,
// down's columns divided by them, gate as it is. Without factors nothing changes.
void ApplyRescale(Matrix m, std::span<const float> factors, LinearWeights& weights);

// The inverse: the weights that matrix m of a rescaled file stands for, [rows, cols] as the
// checkpoint has them.
std::vector<float> Restore(Matrix m, std::span<const float> factors, const QuantizedMatrix& stored);

// What the checkpoint's weight at a place is multiplied by in the file: 1, f of the row, or 1 / f
// of the column.
float RescaleAt(Matrix m, std::span<const float> factors, size_t row, size_t column);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_RESCALE_H_
