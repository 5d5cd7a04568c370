#include "quant/quantizer/refine.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/linalg/dense.h"
#include "quant/quantizer/lanes.h"
#include "quant/quantizer/quantizer.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

// The loss as a function of one row's scales, (s − best)·A·(s − best)ᵀ.
class ScaleSolver {
 public:
  explicit ScaleSolver(size_t blocks) : blocks_(blocks), factor_(blocks * blocks), best_(blocks) {}

  double& A(size_t i, size_t j) { return factor_[i * blocks_ + j]; }  // j <= i
  double& b(size_t i) { return best_[i]; }

  // Solves A·best = b, and rounds to `format` from the last scale to the first. Scales of blocks
  // without integers stay as they are. False if there is no solution.
  bool Solve(WeightFormat format, std::span<float> scales) {
    empty_.assign(blocks_, false);
    for (size_t i = 0; i < blocks_; ++i) {
      if (A(i, i) > 0) continue;
      empty_[i] = true;
      A(i, i) = 1;
      b(i) = scales[i];
    }
    if (!Cholesky(factor_, blocks_)) return false;
    SolveRows(factor_, blocks_, best_, nullptr);
    return Round(format, scales);
  }

 private:
  bool Round(WeightFormat format, std::span<float> scales) {
    rounded_.assign(blocks_, 0);
    for (size_t i = blocks_; i-- > 0;) {
      double wanted = best_[i] * A(i, i);
      for (size_t k = i + 1; k < blocks_; ++k) wanted += A(k, i) * (best_[k] - rounded_[k]);
      rounded_[i] = StoredScale(static_cast<float>(wanted / A(i, i)), format);
      const float largest = rounded_[i] * static_cast<float>(MinInteger(format.type));
      if (empty_[i]) {
        rounded_[i] = scales[i];
      } else if (!std::isfinite(largest) || std::fabs(largest) < kMinWeightAmax) {
        return false;
      }
    }
    std::ranges::copy(rounded_, scales.begin());
    return true;
  }

  size_t blocks_;
  std::vector<double> factor_;
  std::vector<double> best_;
  std::vector<float> rounded_;
  std::vector<bool> empty_;  // blocks without integers
};

// Up to kLaneRows rows of a matrix.
class RowGroup {
 public:
  RowGroup(MatrixView<const float> target, size_t first_row, const LossMoments& moments,
           const RefineOptions& options, QuantizedMatrix& matrix)
      : target_(target),
        first_row_(first_row),
        n_(moments.n),
        h_(moments.second.data(), n_, n_),
        options_(options),
        damping_(static_cast<float>(options.damping)),
        matrix_(matrix),
        error_(target.rows * n_),
        slope_(target.rows * n_),
        best_loss_(target.rows, std::numeric_limits<double>::infinity()) {}

  void Run() {
    best_ = Copy();
    Evaluate();
    for (int round = 0; round < options_.rounds; ++round) {
      SolveScales();
      Evaluate();
      for (size_t r = 0; r < target_.rows; ++r) {
        for (int pass = 0; pass < options_.passes && Descend(r); ++pass) {
        }
      }
      Evaluate();
    }
    Restore();
  }

 private:
  struct Rows {
    std::vector<int8_t> integers;
    std::vector<float> scales;
  };

  std::span<int8_t> integers(size_t r) {
    return std::span(matrix_.integers).subspan((first_row_ + r) * n_, n_);
  }
  std::span<float> scales(size_t r) {
    return std::span(matrix_.scales).subspan((first_row_ + r) * matrix_.blocks(), matrix_.blocks());
  }

  Rows Copy() {
    Rows rows;
    for (size_t r = 0; r < target_.rows; ++r) {
      rows.integers.insert(rows.integers.end(), integers(r).begin(), integers(r).end());
      rows.scales.insert(rows.scales.end(), scales(r).begin(), scales(r).end());
    }
    return rows;
  }

  // The errors of all rows, H times them, and so their losses; remembers the best.
  void Evaluate() {
    const size_t block = matrix_.block();
    for (size_t r = 0; r < target_.rows; ++r) {
      const auto q = integers(r);
      const auto s = scales(r);
      for (size_t k = 0; k < n_; ++k) {
        error_[r * n_ + k] = target_.row(r)[k] - static_cast<float>(q[k]) * s[k / block];
      }
    }
    Multiply(1, {error_.data(), target_.rows, n_}, Transpose::kNo, h_, Transpose::kNo, 0,
             {slope_.data(), target_.rows, n_});
    for (size_t r = 0; r < target_.rows; ++r) {
      double loss = 0;
      for (size_t k = r * n_; k < (r + 1) * n_; ++k) {
        slope_[k] += damping_ * error_[k];
        loss += static_cast<double>(error_[k]) * slope_[k];
      }
      if (!(loss < best_loss_[r])) continue;
      best_loss_[r] = loss;
      std::ranges::copy(integers(r), best_.integers.begin() + static_cast<ptrdiff_t>(r * n_));
      std::ranges::copy(scales(r),
                        best_.scales.begin() + static_cast<ptrdiff_t>(r * matrix_.blocks()));
    }
  }

  void Restore() {
    for (size_t r = 0; r < target_.rows; ++r) {
      std::ranges::copy(std::span(best_.integers).subspan(r * n_, n_), integers(r).begin());
      std::ranges::copy(std::span(best_.scales).subspan(r * matrix_.blocks(), matrix_.blocks()),
                        scales(r).begin());
    }
  }

  // --- Scales ------------------------------------------------------------------------------------

  // A_ij = q_i·H_ij·q_jᵀ for each row, q_i being the integers of block i; b_i = q_i·(H·target)_i.
  void SolveScales() {
    const size_t blocks = matrix_.blocks();
    const size_t block = matrix_.block();
    std::vector<Lanes> q(n_);
    for (size_t r = 0; r < target_.rows; ++r) {
      const auto row = integers(r);
      for (size_t k = 0; k < n_; ++k) q[k][r] = row[k];
    }
    std::vector<Lanes> form(blocks * blocks);
    std::vector<Lanes> product(n_);
    for (size_t j = 0; j < blocks; ++j) {
      const size_t first = j * block;
      const size_t count = std::min(block, n_ - first);
      // H[from `first` on, block j]·q_j: blocks i < j are found in their own turn, by symmetry.
      Multiply(1, {h_.data + first * n_ + first, n_ - first, count, n_}, Transpose::kNo,
               {q[first].v.data(), count, kLaneRows}, Transpose::kNo, 0,
               {product[first].v.data(), n_ - first, kLaneRows});
      for (size_t k = first; k < first + count; ++k) {
        for (size_t r = 0; r < kLaneRows; ++r) product[k].v[r] += damping_ * q[k].v[r];
      }
      for (size_t k = first; k < n_; ++k) {
        Lanes& sum = form[k / block * blocks + j];
        for (size_t r = 0; r < kLaneRows; ++r) sum.v[r] += q[k].v[r] * product[k].v[r];
      }
    }
    ScaleSolver solver(blocks);
    for (size_t r = 0; r < target_.rows; ++r) {
      for (size_t i = 0; i < blocks; ++i) {
        for (size_t j = 0; j <= i; ++j) solver.A(i, j) = form[i * blocks + j][r];
      }
      SetRightSide(r, solver);
      solver.Solve(matrix_.format, scales(r));
    }
  }

  // b = A·s + q·H·e, from the slopes that Evaluate left: no second product with H.
  void SetRightSide(size_t r, ScaleSolver& solver) {
    const size_t blocks = matrix_.blocks();
    const size_t block = matrix_.block();
    const auto q = integers(r);
    const auto s = scales(r);
    for (size_t i = 0; i < blocks; ++i) {
      double sum = 0;
      for (size_t j = 0; j < blocks; ++j) {
        sum += (j <= i ? solver.A(i, j) : solver.A(j, i)) * s[j];
      }
      const size_t end = std::min(n_, (i + 1) * block);
      for (size_t k = i * block; k < end; ++k) {
        sum += static_cast<double>(q[k]) * slope_[r * n_ + k];
      }
      solver.b(i) = sum;
    }
  }

  // --- Integers ----------------------------------------------------------------------------------

  // One pass over row r. False if nothing changed.
  bool Descend(size_t r) {
    const size_t block = matrix_.block();
    const auto q = integers(r);
    const auto s = scales(r);
    const auto lowest = static_cast<float>(MinInteger(matrix_.format.type));
    const auto highest = static_cast<float>(MaxInteger(matrix_.format.type));
    float* slope = slope_.data() + r * n_;
    bool changed = false;
    for (size_t k = 0; k < n_; ++k) {
      const float scale = s[k / block];
      const float* h = h_.data + k * n_;
      const float curvature = (h[k] + damping_) * scale;
      if (curvature == 0.0f) continue;
      const float now = q[k];
      const float wanted = now + slope[k] / curvature;
      const float low = wanted > lowest ? wanted : lowest;
      const float next = RoundSmall(low > highest ? highest : low);
      if (next == now) continue;
      changed = true;
      q[k] = static_cast<int8_t>(next);
      const float step = (next - now) * scale;
      for (size_t i = 0; i < n_; ++i) slope[i] -= step * h[i];
      slope[k] -= step * damping_;
    }
    return changed;
  }

  MatrixView<const float> target_;
  size_t first_row_;
  size_t n_;
  MatrixView<const float> h_;
  const RefineOptions& options_;
  float damping_;
  QuantizedMatrix& matrix_;
  std::vector<float> error_;  // target − value
  std::vector<float> slope_;  // (H + damping·I) · error
  std::vector<double> best_loss_;
  Rows best_;
};

}  // namespace

void Refine(MatrixView<const float> target, const LossMoments& moments,
            const RefineOptions& options, QuantizedMatrix& matrix, const ThreadPool* pool) {
  assert(matrix.rows == target.rows && matrix.cols == moments.n && target.cols == moments.n);
  ParallelFor(pool, target.rows, kLaneRows, [&](size_t begin, size_t end) {
    RowGroup(target.Rows(begin, end - begin), begin, moments, options, matrix).Run();
  });
}

}  // namespace sluice
