#include "src/format/quantized_matrix.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "src/base/half.h"

namespace sluice {

void EncodeWeights(std::span<const float> weights, float scale, WeightType type,
                   std::span<int8_t> integers) {
  assert(integers.size() == weights.size());
  if (scale == 0.0f) {
    std::ranges::fill(integers, int8_t{0});
    return;
  }
  // In double, so that the quotient neither overflows nor is rounded across a tie. Adding
  // 1.5 · 2^52 leaves no fraction bits, where std::nearbyint would be a library call per weight.
  constexpr double kMagic = 0x1.8p52;
  const double lowest = MinInteger(type);
  const double highest = MaxInteger(type);
  std::ranges::transform(weights, integers.begin(), [=, s = static_cast<double>(scale)](float w) {
    const double q = std::clamp(static_cast<double>(w) / s, lowest, highest);
    return static_cast<int8_t>(static_cast<int>((q + kMagic) - kMagic));
  });
}

int8_t EncodeWeight(float weight, float scale, WeightType type) {
  int8_t integer = 0;
  EncodeWeights({&weight, 1}, scale, type, {&integer, 1});
  return integer;
}

float StoredScale(float scale, WeightFormat format) {
  return format.blocked() ? ToFloat(ToBf16(scale)) : scale;
}

std::vector<float> Dequantize(const QuantizedMatrix& matrix) {
  if (!matrix.format.quantized()) return matrix.values;
  std::vector<float> weights(matrix.rows * matrix.cols);
  for (size_t r = 0; r < matrix.rows; ++r) {
    for (size_t c = 0; c < matrix.cols; ++c) {
      const size_t i = r * matrix.cols + c;
      weights[i] = static_cast<float>(matrix.integers[i]) * matrix.scale(r, c);
    }
  }
  return weights;
}

QuantizedMatrix EncodeFloat(std::span<const float> weights, size_t rows, size_t cols,
                            WeightFormat format) {
  assert(!format.quantized() && weights.size() == rows * cols);
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.values.assign(weights.begin(), weights.end());
  if (format.type == WeightType::kBf16) {
    for (float& value : matrix.values) value = ToFloat(ToBf16(value));
  }
  return matrix;
}

}  // namespace sluice
