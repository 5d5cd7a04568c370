#include "quant/linalg/matrix_product.h"

#include <cblas.h>

#include <algorithm>
#include <cstddef>

#include "quant/linalg/blas_threads.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

// Rows of one task: enough that repacking w for each of them costs little.
constexpr size_t kTaskRows = 256;

blasint Size(size_t n) { return static_cast<blasint>(n); }

}  // namespace

void MultiplyTransposed(MatrixView<const float> x, MatrixView<const float> w,
                        std::span<const float> bias, MatrixView<float> out, const ThreadPool* pool,
                        float factor) {
  UseOneBlasThread();
  ParallelFor(pool, x.rows, kTaskRows, [&](size_t begin, size_t end) {
    // With bias the product is added to rows that hold it already.
    if (!bias.empty()) {
      for (size_t r = begin; r < end; ++r) std::ranges::copy(bias, out.row(r).begin());
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, Size(end - begin), Size(w.rows),
                Size(x.cols), factor, x.row(begin).data(), Size(x.stride), w.data, Size(w.stride),
                bias.empty() ? 0.0f : 1.0f, out.row(begin).data(), Size(out.stride));
  });
}

void Multiply(MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> out) {
  UseOneBlasThread();
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Size(a.rows), Size(b.cols), Size(a.cols),
              1.0f, a.data, Size(a.stride), b.data, Size(b.stride), 0.0f, out.data,
              Size(out.stride));
}

}  // namespace sluice
