// The order in which a matrix's columns are rounded, and how later columns make up for the errors
// of earlier ones.
#ifndef SLUICE_QUANT_QUANTIZER_ERROR_FACTOR_H_
#define SLUICE_QUANT_QUANTIZER_ERROR_FACTOR_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "quant/quantizer/loss_moments.h"
#include "sluice/cpu.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

// H + damping·I = L·Lᵀ with the columns permuted. A row's loss e·H·eᵀ is then
//
//   Σ_j stiffness_j · (e_j + Σ_{k>j} feedback_kj · e_k)²,
//
// so that columns are rounded from the last position to the first, each to the grid's value nearest
// to what makes its term zero. This is the error-compensated rounding of GPTQ (Frantar, Ashkboos,
// Hoefler, Alistarh, 2022, arXiv:2210.17323), written with the factor of H itself where the paper
// has that of its inverse: the same integers, one factorization, no inverse of what may be
// singular.
struct ErrorFactor {
  size_t n = 0;
  std::vector<size_t> order;     // the column at each position; the last position is rounded first
  std::vector<double> factor;    // L [n, n], lower triangle
  std::vector<float> feedback;   // [n, n]: L_kj / L_jj at k·n + j, below the diagonal
  std::vector<float> stiffness;  // L_jj²
  double damping = 0;            // what was added to H's diagonal
  double damping_step = 0;       // the same as a part of the diagonal's mean
};

// What is tried in turn for `damping`, as parts of the mean of H's diagonal.
inline constexpr double kDampingSteps[] = {0.01, 0.03, 0.1, 0.3, 1.0};

// Columns with large H_jj are rounded first (last in the order), before errors have gathered.
// `block` > 1 keeps the columns of a block together, blocks by their mean H_jj.
std::vector<size_t> OrderColumns(const LossMoments& moments, size_t block);

// Nothing, if H is not positive definite with any of kDampingSteps (it is not finite, or zero).
std::optional<ErrorFactor> Factorize(const LossMoments& moments, std::vector<size_t> order);

// How far ShiftedWeights goes, in largest weights of a block.
inline constexpr float kMostShifted = 2;

// The weights that minimise the loss with ‖V − W‖² · damping added to it: W − R·(H + damping·I)⁻¹
// [rows, n], clipped to ±kMostShifted of the largest |W| among the `block` columns that they lie
// in; W itself where the moments have no R. Unlimited, columns that see few tokens grow to many
// times any weight that the model has, which is of no use to other tokens and costs their block its
// scale.
std::vector<float> ShiftedWeights(MatrixView<const float> weights, const LossMoments& moments,
                                  const ErrorFactor& factor, size_t block, const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_ERROR_FACTOR_H_
