#include "quant/quantizer/seen_activations.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/aligned_buffer.h"
#include "src/base/thread_pool.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

constexpr size_t kTokenGrain = 32;

// Int8 formats take quantized activations; which of them does not matter here.
const Kernels& BestKernels() {
  static const Kernels& best = *FindKernels("", WeightFormat{WeightType::kInt8, 0}).value().decode;
  return best;
}

// Room for one row in int8.
struct Row {
  explicit Row(size_t n)
      : values(RoundUp(n, kMaxBlock)),
        scales(DivCeil(n, kActivationBlock)),
        offsets(scales.size()) {}
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<int32_t> offsets;
};

bool Quantize(const float* x, size_t n, ActivationFormat format, Row& row) {
  if (format == ActivationFormat::kBlock) {
    return BestKernels().quantize_blocks({.x = x,
                                          .n = n,
                                          .values = row.values.data(),
                                          .scales = row.scales.data(),
                                          .offsets = row.offsets.data()});
  }
  float scale = 0;
  int32_t total = 0;
  const bool finite =
      BestKernels().quantize_row(x, n, row.values.data(), &scale, row.offsets.data(), &total);
  row.scales.assign(row.scales.size(), scale);
  return finite;
}

}  // namespace

void RoundActivations(MatrixView<float> x, ActivationFormat format, const ThreadPool* pool) {
  if (format == ActivationFormat::kFloat) return;
  ParallelFor(pool, x.rows, kTokenGrain, [&](size_t begin, size_t end) {
    Row row(x.cols);
    for (size_t t = begin; t < end; ++t) {
      const auto values = x.row(t);
      if (!Quantize(values.data(), x.cols, format, row)) continue;
      for (size_t k = 0; k < x.cols; ++k) {
        values[k] = static_cast<float>(row.values[k]) * row.scales[k / kActivationBlock];
      }
    }
  });
}

}  // namespace sluice
