// How much a matrix's rounding costs, as sums over calibration tokens.
#ifndef SLUICE_QUANT_QUANTIZER_LOSS_MOMENTS_H_
#define SLUICE_QUANT_QUANTIZER_LOSS_MOMENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sluice/cpu.h"
#include "sluice/matrix_view.h"

namespace sluice {

// The squared error of a linear layer over tokens, as a function of its weights V [rows, n]:
//
//   Σ_t ‖V·x_t − y_t‖²  =  tr(E·H·Eᵀ) + 2·tr(E·Rᵀ) + rest,   E = V − W
//
// where x_t [n] is what the matrix will multiply at run time, y_t [rows] what the layer should give
// and W the weights as trained. H = Σ x·xᵀ; R = Σ (W·x − y)·xᵀ, which is empty where y = W·x;
// rest = Σ ‖W·x − y‖². Nothing but sums over tokens is kept, so memory does not grow with text.
struct LossMoments {
  size_t n = 0;               // in
  uint64_t tokens = 0;        // Σ 1
  std::vector<float> second;  // H [n, n]; symmetric, except while it is being summed
  std::vector<float> shift;   // R [rows, n], or empty: zero
  double rest = 0;
  double target = 0;  // Σ ‖y‖², what errors are relative to; 0: unknown

  static LossMoments Zero(size_t n) {
    LossMoments moments;
    moments.n = n;
    moments.second.resize(n * n);
    return moments;
  }
};

// Adds the outer products of x [t, n] to H's lower triangle, and t to `tokens`. At most 4096 tokens
// a call, since they are added up in f32. The sums do not depend on the number of threads.
void AddSecondMoments(MatrixView<const float> x, LossMoments& moments, const ThreadPool* pool);

// sum [rows, n] += aᵀ·b, over tokens: a [t, rows], b [t, n].
void AddCrossMoments(MatrixView<const float> a, MatrixView<const float> b, std::vector<float>& sum,
                     const ThreadPool* pool);

// Copies H's lower triangle to its upper one; call it after the last AddSecondMoments.
void Mirror(LossMoments& moments);

// Adds b's sums to a's; both mirrored, or neither.
void Add(const LossMoments& b, LossMoments& a);

// Whether every sum is finite.
bool IsFinite(const LossMoments& moments);

// Σ_t ‖V·x − y‖² per token by the formula above, for E = V − W [rows, n]. Never negative.
double MeanLoss(MatrixView<const float> difference, const LossMoments& moments,
                const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_LOSS_MOMENTS_H_
