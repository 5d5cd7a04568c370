#include "quant/analysis/metrics.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

template <class Reference, class Actual>
ErrorSums SumsOf(std::span<const Reference> reference, std::span<const Actual> actual) {
  assert(reference.size() == actual.size());
  ErrorSums sums;
  for (size_t i = 0; i < reference.size(); ++i) {
    sums.Add(static_cast<double>(reference[i]), static_cast<double>(actual[i]));
  }
  return sums;
}

}  // namespace

ErrorSums Compare(std::span<const float> reference, std::span<const float> actual) {
  return SumsOf(reference, actual);
}

void ErrorSums::Add(const ErrorSums& other) {
  reference_ += other.reference_;
  actual_ += other.actual_;
  product_ += other.product_;
  error_ += other.error_;
  max_abs_error_ = MaxOrNan(max_abs_error_, other.max_abs_error_);
}

double ErrorSums::relative_l2() const {
  return error_ == 0 ? 0 : std::sqrt(error_) / std::sqrt(reference_);
}

// Adding 0 makes +0 of −0, which is what an error as large as y would show.
double ErrorSums::sqnr_db() const { return -20 * std::log10(relative_l2()) + 0.0; }

double ErrorSums::cosine() const {
  if (std::isnan(product_)) return product_;  // also of 0 · ∞
  if (reference_ == 0 && actual_ == 0) return 1;
  if (reference_ == 0 || actual_ == 0) return 0;
  // Rounding may carry the quotient past ±1. (std::clamp returns a NaN as it came.)
  return std::clamp(product_ / (std::sqrt(reference_) * std::sqrt(actual_)), -1.0, 1.0);
}

OutputReport MeasureOutput(MatrixView<const double> reference, MatrixView<const float> actual) {
  assert(reference.rows == actual.rows && reference.rows > 0);
  OutputReport error;
  error.cosine_min = std::numeric_limits<double>::infinity();
  ErrorSums all;
  double worst = -1;
  for (size_t t = 0; t < reference.rows; ++t) {
    const ErrorSums token = SumsOf(reference.row(t), actual.row(t));
    all.Add(token);
    const double cosine = token.cosine();
    error.cosine_mean += cosine / static_cast<double>(reference.rows);
    error.cosine_min = -MaxOrNan(-error.cosine_min, -cosine);
    const double l2 = token.relative_l2();
    if (!std::isnan(worst) && !(l2 <= worst)) {
      worst = l2;
      error.worst_token = t;
    }
  }
  error.relative_l2 = all.relative_l2();
  error.sqnr_db = all.sqnr_db();
  error.max_abs_error = all.max_abs_error();
  return error;
}

double RelativeL2(MatrixView<const double> reference, MatrixView<const double> actual) {
  assert(reference.rows == actual.rows);
  ErrorSums all;
  for (size_t r = 0; r < reference.rows; ++r) all.Add(SumsOf(reference.row(r), actual.row(r)));
  return all.relative_l2();
}

}  // namespace sluice
