#include "quant/decoder/float_block.h"

#include "quant/linalg/matrix_product.h"
#include "sluice/format.h"
#include "src/base/thread_pool.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

constexpr size_t kTaskRows = 64;

// The activations that the kernels have, on the best instruction set.
const Kernels& BestKernels() {
  static const Kernels& best = *FindKernels("", WeightFormat{}).value().decode;
  return best;
}

}  // namespace

void BlockHidden(const FfnWeights& weights, MatrixView<const float> x, MatrixView<float> hidden,
                 MatrixView<float> scratch, const ThreadPool* pool) {
  const LinearWeights& gate = weights.matrices[Matrix::kGate];
  const LinearWeights& up = weights.matrices[Matrix::kUp];
  MultiplyTransposed(x, up.view(), up.bias, hidden, pool);
  if (weights.gated) MultiplyTransposed(x, gate.view(), gate.bias, scratch, pool);
  ParallelFor(pool, x.rows, kTaskRows, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      BestKernels().combine({.activation = weights.activation,
                             .gate = weights.gated ? scratch.row(r).data() : nullptr,
                             .up = hidden.row(r).data(),
                             .out = hidden.row(r).data(),
                             .n = hidden.cols});
    }
  });
}

void BlockOutput(const FfnWeights& weights, MatrixView<const float> hidden, MatrixView<float> y,
                 const ThreadPool* pool) {
  const LinearWeights& down = weights.matrices[Matrix::kDown];
  MultiplyTransposed(hidden, down.view(), down.bias, y, pool);
}

}  // namespace sluice
