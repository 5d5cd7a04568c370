#include "quant/decoder/float_block.h"

#include <algorithm>
#include <vector>

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

void AddFloatBlock(const DecoderLayer& layer, const FfnWeights& weights, MatrixView<float> stream,
                   const ThreadPool* pool, const BlockObserver& observe) {
  const size_t most = std::min(stream.rows, kBlockRows);
  const size_t d_ff = weights.matrices[Matrix::kUp].rows;
  std::vector<float> input(most * stream.cols), output(input.size());
  std::vector<float> hidden(most * d_ff), gate(weights.gated ? hidden.size() : 0);
  for (size_t first = 0; first < stream.rows; first += most) {
    const size_t count = std::min(most, stream.rows - first);
    const MatrixView<float> rows = stream.Rows(first, count);
    const MatrixView<float> x(input.data(), count, stream.cols);
    const MatrixView<float> y(output.data(), count, stream.cols);
    const MatrixView<float> h(hidden.data(), count, d_ff);
    layer.BlockInput(rows, x, pool);
    BlockHidden(weights, x, h, {gate.data(), count, d_ff}, pool);
    if (observe) observe(first, x, h);
    BlockOutput(weights, h, y, pool);
    layer.AddBlockOutput(y, rows, pool);
  }
}

}  // namespace sluice
