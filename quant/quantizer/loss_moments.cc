#include "quant/quantizer/loss_moments.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "quant/linalg/dense.h"
#include "src/base/aligned_buffer.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

// Sides of the squares of H, and rows of R, that a thread sums at a time.
constexpr size_t kTile = 192;
// Rows of E whose products with H a thread has in memory.
constexpr size_t kLossRows = 32;

MatrixView<const float> Columns(MatrixView<const float> m, size_t first, size_t count) {
  return {m.data + first, m.rows, count, m.stride};
}

}  // namespace

void AddSecondMoments(MatrixView<const float> x, LossMoments& moments, const ThreadPool* pool) {
  const size_t n = moments.n;
  assert(x.cols == n && x.rows <= 4096);
  const size_t tiles = DivCeil(n, kTile);
  ParallelFor(pool, tiles * tiles, 1, [&](size_t begin, size_t end) {
    for (size_t tile = begin; tile < end; ++tile) {
      const size_t row = tile / tiles * kTile;
      const size_t col = tile % tiles * kTile;
      if (col > row) continue;
      const size_t rows = std::min(kTile, n - row);
      const size_t cols = std::min(kTile, n - col);
      Multiply(1, Columns(x, row, rows), Transpose::kYes, Columns(x, col, cols), Transpose::kNo, 1,
               {moments.second.data() + row * n + col, rows, cols, n});
    }
  });
  moments.tokens += x.rows;
}

void AddCrossMoments(MatrixView<const float> a, MatrixView<const float> b, std::vector<float>& sum,
                     const ThreadPool* pool) {
  assert(a.rows == b.rows);
  sum.resize(a.cols * b.cols);
  ParallelFor(pool, a.cols, kTile, [&](size_t begin, size_t end) {
    Multiply(1, Columns(a, begin, end - begin), Transpose::kYes, b, Transpose::kNo, 1,
             {sum.data() + begin * b.cols, end - begin, b.cols});
  });
}

void Mirror(LossMoments& moments) {
  const size_t n = moments.n;
  for (size_t r = 0; r < n; ++r) {
    for (size_t c = r + 1; c < n; ++c) moments.second[r * n + c] = moments.second[c * n + r];
  }
}

void Add(const LossMoments& b, LossMoments& a) {
  assert(a.n == b.n);
  const auto add = [](const std::vector<float>& from, std::vector<float>& to) {
    to.resize(std::max(to.size(), from.size()));
    std::ranges::transform(from, to, to.begin(), std::plus());
  };
  add(b.second, a.second);
  add(b.shift, a.shift);
  a.tokens += b.tokens;
  a.rest += b.rest;
  a.target += b.target;
}

bool IsFinite(const LossMoments& moments) {
  const auto finite = [](float v) { return std::isfinite(v); };
  return std::ranges::all_of(moments.second, finite) && std::ranges::all_of(moments.shift, finite);
}

double MeanLoss(MatrixView<const float> difference, const LossMoments& moments,
                const ThreadPool* pool) {
  const size_t n = moments.n;
  assert(difference.cols == n);
  // A sum for each group of rows, added up in their order.
  std::vector<double> sums(DivCeil(difference.rows, kLossRows));
  ParallelFor(pool, difference.rows, kLossRows, [&](size_t begin, size_t end) {
    const auto rows = difference.Rows(begin, end - begin);
    std::vector<float> product(rows.rows * n);
    Multiply(1, rows, Transpose::kNo, {moments.second.data(), n, n}, Transpose::kNo, 0,
             {product.data(), rows.rows, n});
    double sum = 0;
    for (size_t r = 0; r < rows.rows; ++r) {
      const auto e = rows.row(r);
      for (size_t c = 0; c < n; ++c) {
        double slope = product[r * n + c];
        if (!moments.shift.empty()) slope += 2.0 * moments.shift[(begin + r) * n + c];
        sum += e[c] * slope;
      }
    }
    sums[begin / kLossRows] = sum;
  });
  double loss = moments.rest;
  for (const double sum : sums) loss += sum;
  return std::max(loss, 0.0) / static_cast<double>(std::max<uint64_t>(moments.tokens, 1));
}

}  // namespace sluice
