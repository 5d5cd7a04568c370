// A matrix in one of the weight formats, in plain row-major order: what quantizers produce and what
// tools look at. Kernels use the packed form (src/format/pack.h).
#ifndef SLUICE_SRC_FORMAT_QUANTIZED_MATRIX_H_
#define SLUICE_SRC_FORMAT_QUANTIZED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/error.h"
#include "sluice/format.h"
#include "src/base/aligned_buffer.h"

namespace sluice {

// Quantized formats use `integers` and `scales`, float formats `values`; weight [r, c] is
// integers[r·cols + c] · scales[r·blocks() + c / block], or values[r·cols + c].
struct QuantizedMatrix {
  WeightFormat format;
  size_t rows = 0;               // out
  size_t cols = 0;               // in
  std::vector<int8_t> integers;  // [rows, cols]: [-127, 127] or [-8, 7]
  std::vector<float> scales;     // [rows, blocks()]: bf16 values when the format is blocked
  std::vector<float> values;     // [rows, cols]: bf16 values when the format is bf16

  size_t block() const { return format.blocked() ? format.block : cols; }
  size_t blocks() const { return DivCeil(cols, block()); }
  float scale(size_t row, size_t col) const { return scales[row * blocks() + col / block()]; }
};

// The largest integer of a format: 127 or 7. Its negative is the smallest that quantizers choose on
// that side, except −8 in int4.
constexpr int MaxInteger(WeightType type) { return type == WeightType::kInt8 ? 127 : 7; }
constexpr int MinInteger(WeightType type) { return type == WeightType::kInt8 ? -127 : -8; }

// The integer nearest to weight / scale, ties to even, within the format's range; 0 for scale 0.
int8_t EncodeWeight(float weight, float scale, WeightType type);
// The same for many weights under one scale; `integers` has their number.
void EncodeWeights(std::span<const float> weights, float scale, WeightType type,
                   std::span<int8_t> integers);

// Rounds a scale to what the format stores: bf16 in blocked formats, f32 otherwise.
float StoredScale(float scale, WeightFormat format);

// f32 weights [rows, cols]; one rounding each.
std::vector<float> Dequantize(const QuantizedMatrix& matrix);

// f32 or bf16 from f32 weights [rows, cols].
QuantizedMatrix EncodeFloat(std::span<const float> weights, size_t rows, size_t cols,
                            WeightFormat format);

}  // namespace sluice

#endif  // SLUICE_SRC_FORMAT_QUANTIZED_MATRIX_H_
