#include "quant/linalg/dense.h"

#include <cblas.h>

#include <cassert>
#include <cmath>

#include "quant/linalg/blas_threads.h"
#include "src/base/thread_pool.h"

// LAPACK's own interface: Debian has its C header in a package of its own, for four functions.
extern "C" void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info);

namespace sluice {
namespace {

// Rows that a thread solves for at a time.
constexpr size_t kRowGrain = 32;

CBLAS_TRANSPOSE Flag(Transpose t) { return t == Transpose::kYes ? CblasTrans : CblasNoTrans; }

int Int(size_t n) { return static_cast<int>(n); }

}  // namespace

void Multiply(float alpha, MatrixView<const float> a, Transpose ta, MatrixView<const float> b,
              Transpose tb, float beta, MatrixView<float> c) {
  UseOneBlasThread();
  const size_t k = ta == Transpose::kYes ? a.rows : a.cols;
  assert((ta == Transpose::kYes ? a.cols : a.rows) == c.rows);
  assert((tb == Transpose::kYes ? b.cols : b.rows) == k);
  assert((tb == Transpose::kYes ? b.rows : b.cols) == c.cols);
  cblas_sgemm(CblasRowMajor, Flag(ta), Flag(tb), Int(c.rows), Int(c.cols), Int(k), alpha, a.data,
              Int(a.stride), b.data, Int(b.stride), beta, c.data, Int(c.stride));
}

bool Cholesky(std::span<double> a, size_t n) {
  UseOneBlasThread();
  // What LAPACK, column by column, calls the upper triangle is ours below the diagonal.
  const char upper = 'U';
  const int size = Int(n);
  int info = 0;
  dpotrf_(&upper, &size, a.data(), &size, &info);
  if (info != 0) return false;
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(a[i * n + i])) return false;
  }
  return true;
}

void SolveRows(std::span<const double> factor, size_t n, std::span<double> b,
               const ThreadPool* pool) {
  UseOneBlasThread();
  ParallelFor(pool, b.size() / n, kRowGrain, [&](size_t begin, size_t end) {
    double* rows = b.data() + begin * n;
    for (const CBLAS_TRANSPOSE t : {CblasTrans, CblasNoTrans}) {
      cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, t, CblasNonUnit, Int(end - begin), Int(n),
                  1.0, factor.data(), Int(n), rows, Int(n));
    }
  });
}

}  // namespace sluice
