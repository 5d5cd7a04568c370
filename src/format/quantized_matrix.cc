#include "src/format/quantized_matrix.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "src/base/half.h"

namespace sluice {

int8_t EncodeWeight(float weight, float scale, WeightType type) {
  if (scale == 0.0f) return 0;
  // In double, so that a subnormal scale cannot overflow the quotient before it is clamped.
  const double q = std::nearbyint(static_cast<double>(weight) / static_cast<double>(scale));
  return static_cast<int8_t>(
      std::clamp(q, static_cast<double>(MinInteger(type)), static_cast<double>(MaxInteger(type))));
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
