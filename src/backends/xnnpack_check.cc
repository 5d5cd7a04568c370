#include "src/backends/xnnpack_check.h"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <vector>

namespace sluice {
namespace {

// More rows than the widest kernel's 64, and not a multiple of 16; two blocks along K; one token
// more than the tallest kernel's 16, so that every number of leftover rows occurs.
constexpr size_t kRows = 70;
constexpr size_t kCols = 64;
constexpr size_t kBlock = 32;
constexpr size_t kTokens = 17;

// Small whole numbers without a pattern that a wrong order of nibbles or rows would preserve.
int Whole(size_t i, int low, int high) {
  const auto hash = static_cast<uint32_t>((i + 1) * 2654435761u) >> 16;
  return low + static_cast<int>(hash % static_cast<uint32_t>(high - low + 1));
}

int Weight(size_t row, size_t col) { return Whole(row * kCols + col, -8, 7); }

XnnWeights SmallWeights(XnnKernel kernel) {
  constexpr uint16_t kBf16One = 0x3F80;
  XnnWeights w;
  w.kernel = kernel;
  w.rows = kRows;
  w.cols = kCols;
  w.block = kBlock;
  for (size_t i = 0; i < kRows * kCols; ++i) {
    const int weight = Weight(i / kCols, i % kCols);
    w.floats.push_back(static_cast<float>(weight));
    w.integers.push_back(static_cast<int8_t>(weight));
  }
  for (size_t i = 0; i < w.integers.size(); i += 2) {
    w.nibbles.push_back(static_cast<uint8_t>((w.integers[i] + 8) | (w.integers[i + 1] + 8) << 4));
  }
  w.scales.assign(kRows, 1.0f);
  w.block_scales.assign(kRows * kCols / kBlock, kBf16One);
  return w;
}

// The batch, quantized as the convert operator would: token t has zero point t − 8 and scale t + 1,
// so that another token's parameters give another result.
class Batch {
 public:
  Batch() : floats_(kTokens * kCols + kXnnExtraBytes), values_(floats_.size()) {
    for (size_t i = 0; i < kTokens * kCols; ++i) {
      const xnn_quantization_params params = Params(i / kCols);
      values_[i] = static_cast<int8_t>(Whole(i, -128, 127));
      floats_[i] = static_cast<float>(values_[i] - params.zero_point) * params.scale;
    }
  }

  float at(size_t token, size_t col) const { return floats_[token * kCols + col]; }

  // The first `tokens` tokens.
  XnnRows Rows(size_t tokens) {
    params_.clear();
    for (size_t t = 0; t < tokens + kXnnExtraParams; ++t) {
      params_.push_back(Params(std::min(t, tokens - 1)));
    }
    return {kCols, kCols, floats_.data(), values_.data(), params_.data()};
  }

 private:
  static xnn_quantization_params Params(size_t token) {
    return {static_cast<int32_t>(token) - 8, static_cast<float>(token + 1)};
  }
  std::vector<float> floats_;
  std::vector<int8_t> values_;
  std::vector<xnn_quantization_params> params_;
};

bool Computes(XnnKernel kernel) {
  const auto matrix = XnnMatrix::Create(SmallWeights(kernel), kCols);
  if (!matrix) return false;
  Batch batch;
  std::vector<float> want(kTokens * kRows);
  for (size_t i = 0; i < want.size(); ++i) {
    double sum = 0.0;  // whole numbers below 2^24: exact in float too, in any order
    for (size_t k = 0; k < kCols; ++k) sum += Weight(i % kRows, k) * batch.at(i / kRows, k);
    want[i] = static_cast<float>(sum);
  }
  std::vector<float> y(want.size());
  for (size_t tokens = 1; tokens <= kTokens; ++tokens) {
    std::ranges::fill(y, std::numeric_limits<float>::quiet_NaN());
    if (!matrix->Run(batch.Rows(tokens), tokens, y.data(), /*pool=*/nullptr)) return false;
    if (!std::equal(y.begin(), y.begin() + tokens * kRows, want.begin())) return false;
  }
  return true;
}

}  // namespace

bool XnnKernelWorks(XnnKernel kernel) {
  static std::array<std::once_flag, kXnnKernels> once;
  static std::array<bool, kXnnKernels> works;
  const auto i = static_cast<size_t>(kernel);
  std::call_once(once[i], [&] { works[i] = Computes(kernel); });
  return works[i];
}

}  // namespace sluice
