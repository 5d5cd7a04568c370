#include "quant/analysis/reference_block.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "src/base/thread_pool.h"
#include "src/kernels/kernels.h"
#include "src/kernels/reference.h"

namespace sluice {
namespace {

// Rows of weights that are widened at a time: in double they fit a core's L2 cache.
constexpr size_t kWeightRows = 64;

// One token as integers and scales, for QuantizeActivations.
class QuantizedToken {
 public:
  explicit QuantizedToken(size_t n)
      : n_(n),
        values_(RoundUp(n, kMaxBlock)),
        scales_(DivCeil(n, kActivationBlock)),
        offsets_(scales_.size()) {}

  // False if a value is not finite.
  bool Quantize(const float* x, ActivationFormat format) {
    if (format == ActivationFormat::kBlock) {
      return reference::QuantizeBlocks({.x = x,
                                        .n = n_,
                                        .values = values_.data(),
                                        .scales = scales_.data(),
                                        .offsets = offsets_.data()});
    }
    int32_t total = 0;
    const bool finite =
        reference::QuantizeRow(x, n_, values_.data(), &row_scale_, offsets_.data(), &total);
    std::ranges::fill(scales_, row_scale_);
    return finite;
  }

  double value(size_t k) const {
    return static_cast<double>(values_[k]) * static_cast<double>(scales_[k / kActivationBlock]);
  }

 private:
  size_t n_;
  std::vector<int8_t> values_;
  std::vector<float> scales_;
  std::vector<int32_t> offsets_;
  float row_scale_ = 0;
};

}  // namespace

DoubleMatrix Linear(const DoubleMatrix& x, MatrixView<const float> weights,
                    std::span<const float> bias, const ThreadPool* pool) {
  DoubleMatrix y(x.rows(), static_cast<Eigen::Index>(weights.rows));
  ParallelFor(pool, weights.rows, kWeightRows, [&](size_t begin, size_t end) {
    const auto first = static_cast<Eigen::Index>(begin);
    const auto count = static_cast<Eigen::Index>(end - begin);
    const DoubleMatrix wide = ToDouble(weights.Rows(begin, end - begin));
    auto out = y.middleCols(first, count);
    out.noalias() = x * wide.transpose();
    if (bias.empty()) return;
    out.rowwise() +=
        Eigen::Map<const Eigen::RowVectorXf>(bias.data() + begin, count).cast<double>();
  });
  return y;
}

double Activate(Activation activation, double x) {
  // √(2/π)
  constexpr double kTanhScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  switch (activation) {
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kRelu2:
      return x < 0 ? 0 : x * x;
    case Activation::kGelu:
      // Φ(x) = erfc(−x/√2) / 2 keeps its relative precision where it is small.
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh:
      // (1 + tanh u) / 2 = σ(2u), which does not cancel for negative u.
      return x / (1 + std::exp(-2 * kTanhScale * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kIdentity:
      return x;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void Activate(Activation activation, DoubleMatrix& x, const ThreadPool* pool) {
  const auto cols = static_cast<size_t>(x.cols());
  ParallelFor(pool, static_cast<size_t>(x.rows()), 1, [&](size_t begin, size_t end) {
    for (double& value : std::span(x.data() + begin * cols, (end - begin) * cols)) {
      value = Activate(activation, value);
    }
  });
}

DoubleMatrix QuantizeActivations(const DoubleMatrix& x, ActivationFormat format,
                                 const ThreadPool* pool) {
  if (format == ActivationFormat::kFloat) return x;
  const auto cols = static_cast<size_t>(x.cols());
  DoubleMatrix rounded(x.rows(), x.cols());
  ParallelFor(pool, static_cast<size_t>(x.rows()), 1, [&](size_t begin, size_t end) {
    QuantizedToken token(cols);
    for (size_t t = begin; t < end; ++t) {
      const std::vector<float> narrow(x.data() + t * cols, x.data() + (t + 1) * cols);
      const bool finite = token.Quantize(narrow.data(), format);
      for (size_t k = 0; k < cols; ++k) {
        rounded.data()[t * cols + k] =
            finite ? token.value(k) : std::numeric_limits<double>::quiet_NaN();
      }
    }
  });
  return rounded;
}

}  // namespace sluice
