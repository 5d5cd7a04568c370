#include "quant/quantizer/error_factor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "quant/linalg/dense.h"

namespace sluice {
namespace {

float Diagonal(const LossMoments& moments, size_t column) {
  return moments.second[column * moments.n + column];
}

double MeanDiagonal(const LossMoments& moments) {
  double sum = 0;
  for (size_t c = 0; c < moments.n; ++c) sum += Diagonal(moments, c);
  return sum / static_cast<double>(moments.n);
}

// H with its rows and columns in `order`, lower triangle.
void Permute(const LossMoments& moments, const std::vector<size_t>& order, double damping,
             std::vector<double>& out) {
  const size_t n = moments.n;
  for (size_t r = 0; r < n; ++r) {
    const float* row = moments.second.data() + order[r] * n;
    for (size_t c = 0; c <= r; ++c) out[r * n + c] = row[order[c]];
    out[r * n + r] += damping;
  }
}

// For each block of a row; at most the largest float.
std::vector<double> MostShifted(std::span<const float> row, size_t block) {
  constexpr double kLargestFloat = std::numeric_limits<float>::max();
  std::vector<double> most(DivCeil(row.size(), block));
  for (size_t c = 0; c < row.size(); ++c) {
    const double limit = kMostShifted * std::fabs(static_cast<double>(row[c]));
    most[c / block] = std::min(std::max(most[c / block], limit), kLargestFloat);
  }
  return most;
}

void Describe(ErrorFactor& f) {
  const size_t n = f.n;
  f.feedback.resize(n * n);
  f.stiffness.resize(n);
  std::vector<double> inverse(n);
  for (size_t j = 0; j < n; ++j) {
    const double diagonal = f.factor[j * n + j];
    f.stiffness[j] = static_cast<float>(diagonal * diagonal);
    inverse[j] = 1 / diagonal;
  }
  for (size_t k = 0; k < n; ++k) {
    for (size_t j = 0; j < k; ++j) {
      f.feedback[k * n + j] = static_cast<float>(f.factor[k * n + j] * inverse[j]);
    }
  }
}

}  // namespace

std::vector<size_t> OrderColumns(const LossMoments& moments, size_t block) {
  const size_t n = moments.n;
  std::vector<double> weight_of_block(DivCeil(n, block));
  for (size_t b = 0; b < weight_of_block.size(); ++b) {
    const size_t end = std::min(n, (b + 1) * block);
    for (size_t c = b * block; c < end; ++c) weight_of_block[b] += Diagonal(moments, c);
    weight_of_block[b] /= static_cast<double>(end - b * block);
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if (a / block != b / block) {
      const double wa = weight_of_block[a / block];
      const double wb = weight_of_block[b / block];
      return wa != wb ? wa < wb : a < b;
    }
    return Diagonal(moments, a) < Diagonal(moments, b);
  });
  return order;
}

std::optional<ErrorFactor> Factorize(const LossMoments& moments, std::vector<size_t> order) {
  const double mean = MeanDiagonal(moments);
  if (!std::isfinite(mean) || mean <= 0) return std::nullopt;
  ErrorFactor f;
  f.n = moments.n;
  f.order = std::move(order);
  f.factor.resize(f.n * f.n);
  for (const double step : kDampingSteps) {
    Permute(moments, f.order, step * mean, f.factor);
    if (!Cholesky(f.factor, f.n)) continue;
    f.damping = step * mean;
    f.damping_step = step;
    Describe(f);
    return f;
  }
  return std::nullopt;
}

std::vector<float> ShiftedWeights(MatrixView<const float> weights, const LossMoments& moments,
                                  const ErrorFactor& factor, size_t block, const ThreadPool* pool) {
  const size_t n = moments.n;
  std::vector<float> shifted;
  shifted.reserve(weights.rows * n);
  for (size_t r = 0; r < weights.rows; ++r) {
    const auto row = weights.row(r);
    shifted.insert(shifted.end(), row.begin(), row.end());
  }
  if (moments.shift.empty()) return shifted;
  std::vector<double> correction(weights.rows * n);
  for (size_t r = 0; r < weights.rows; ++r) {
    for (size_t p = 0; p < n; ++p) {
      correction[r * n + p] = moments.shift[r * n + factor.order[p]];
    }
  }
  SolveRows(factor.factor, n, correction, pool);
  for (size_t r = 0; r < weights.rows; ++r) {
    const std::vector<double> most = MostShifted(weights.row(r), block);
    for (size_t p = 0; p < n; ++p) {
      const size_t column = factor.order[p];
      float& w = shifted[r * n + column];
      const double limit = most[column / block];
      w = static_cast<float>(std::clamp(w - correction[r * n + p], -limit, limit));
    }
  }
  return shifted;
}

}  // namespace sluice
