// Every error metric of the project, each defined once.
#ifndef SLUICE_QUANT_ANALYSIS_METRICS_H_
#define SLUICE_QUANT_ANALYSIS_METRICS_H_

#include <cmath>
#include <cstddef>
#include <span>

#include "sluice/matrix_view.h"

namespace sluice {

// The larger of the two; NaN if one is NaN, which std::max may drop.
inline double MaxOrNan(double a, double b) { return std::isnan(a) || b < a ? a : b; }

// Compares two vectors, y (the reference) and ŷ, value by value: weights with dequantized weights,
// outputs with outputs. Sums are in double, so squares must fit one: magnitudes from 1e-150 to
// 1e150, which f32 values and their products do. A NaN in either vector makes every metric NaN; no
// metric divides by zero.
class ErrorSums {
 public:
  void Add(double reference, double actual) {
    const double error = actual - reference;
    reference_ += reference * reference;
    actual_ += actual * actual;
    product_ += reference * actual;
    error_ += error * error;
    max_abs_error_ = MaxOrNan(max_abs_error_, std::fabs(error));
  }
  void Add(const ErrorSums& other);

  // ‖ŷ − y‖₂ / ‖y‖₂. 0 if ŷ = y, also where both are zero; +∞ if only y is zero. Over the entries
  // of a matrix this is the relative Frobenius error, and equally the RMSE over the entries'
  // RMS (both means have the same number of terms).
  double relative_l2() const;
  // Signal to quantization noise, 20·log10(‖y‖₂ / ‖ŷ − y‖₂), in dB. +∞ if ŷ = y.
  double sqnr_db() const;
  // Cosine similarity, y·ŷ / (‖y‖₂·‖ŷ‖₂), in [−1, 1]. 1 if both are zero, 0 if one of them is.
  double cosine() const;
  // max |ŷ − y|.
  double max_abs_error() const { return max_abs_error_; }

 private:
  double reference_ = 0;  // Σ y²
  double actual_ = 0;     // Σ ŷ²
  double product_ = 0;    // Σ y·ŷ
  double error_ = 0;      // Σ (ŷ − y)²
  double max_abs_error_ = 0;
};

// The sums over all pairs of two vectors of the same length, such as all weights of a matrix.
ErrorSums Compare(std::span<const float> reference, std::span<const float> actual);

// The error of a block's output, [tokens, d_model].
struct OutputReport {
  double relative_l2 = 0;    // over the values of all tokens together
  double sqnr_db = 0;        // likewise
  double cosine_mean = 0;    // of the tokens' cosines
  double cosine_min = 0;     // of the tokens' cosines
  double max_abs_error = 0;  // of any value
  size_t worst_token = 0;    // with the largest relative_l2 of its own; NaN is the largest
};
OutputReport MeasureOutput(MatrixView<const double> reference, MatrixView<const float> actual);

// relative_l2 of two matrices of the same shape.
double RelativeL2(MatrixView<const double> reference, MatrixView<const double> actual);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_METRICS_H_
