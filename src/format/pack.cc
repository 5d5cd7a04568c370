#include "src/format/pack.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "src/base/half.h"
#include "src/base/status.h"

namespace sluice {
namespace {

constexpr int kNibbleZero = 8;

// Where the weight of row r, column k lies in its strip.
struct Place {
  size_t byte = 0;
  int shift = 0;  // of the nibble, int4 only
};

Place PlaceOf(WeightType type, size_t r, size_t k) {
  switch (type) {
    case WeightType::kInt8:
      return {(k / kTileK) * kLineBytes + r * kTileK + k % kTileK, 0};
    case WeightType::kInt4: {
      const size_t in_line = k % (2 * kTileK);
      return {(k / (2 * kTileK)) * kLineBytes + r * kTileK + in_line % kTileK,
              in_line < kTileK ? 0 : 4};
    }
    case WeightType::kF32:
      return {(k * kStripRows + r) * sizeof(float), 0};
    case WeightType::kBf16:
      return {(k * kStripRows + r) * sizeof(uint16_t), 0};
  }
  return {};
}

void StoreInteger(std::byte* strip, WeightType type, size_t r, size_t k, int value) {
  const Place place = PlaceOf(type, r, k);
  if (type == WeightType::kInt8) {
    strip[place.byte] = static_cast<std::byte>(value);
  } else {
    const auto nibble = static_cast<std::byte>((value + kNibbleZero) << place.shift);
    strip[place.byte] = (strip[place.byte] & static_cast<std::byte>(0xF0 >> place.shift)) | nibble;
  }
}

int LoadInteger(const std::byte* strip, WeightType type, size_t r, size_t k) {
  const Place place = PlaceOf(type, r, k);
  const int byte = std::to_integer<int>(strip[place.byte]);
  if (type == WeightType::kInt8) return static_cast<int8_t>(byte);
  return ((byte >> place.shift) & 15) - kNibbleZero;
}

void StoreFloat(std::byte* strip, WeightType type, size_t r, size_t k, float value) {
  std::byte* to = strip + PlaceOf(type, r, k).byte;
  if (type == WeightType::kF32) {
    std::memcpy(to, &value, sizeof(value));
  } else {
    const Bf16 half = ToBf16(value);
    std::memcpy(to, &half, sizeof(half));
  }
}

float LoadFloat(const std::byte* strip, WeightType type, size_t r, size_t k) {
  const std::byte* from = strip + PlaceOf(type, r, k).byte;
  if (type == WeightType::kF32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  Bf16 half;
  std::memcpy(&half, from, sizeof(half));
  return ToFloat(half);
}

void StoreScale(std::byte* strip, const PackedLayout& layout, size_t r, size_t b, float scale) {
  const size_t index = b * kStripRows + r;
  if (layout.format.blocked()) {
    const Bf16 half = ToBf16(scale);
    std::memcpy(strip + index * sizeof(half), &half, sizeof(half));
  } else {
    std::memcpy(strip + index * sizeof(scale), &scale, sizeof(scale));
  }
}

float LoadScale(const std::byte* strip, const PackedLayout& layout, size_t r, size_t b) {
  const size_t index = b * kStripRows + r;
  if (layout.format.blocked()) {
    Bf16 half;
    std::memcpy(&half, strip + index * sizeof(half), sizeof(half));
    return ToFloat(half);
  }
  float scale;
  std::memcpy(&scale, strip + index * sizeof(scale), sizeof(scale));
  return scale;
}

}  // namespace

PackedMatrixView PackedMatrix::view() const {
  return {layout_, weights_.data(), layout_.format.quantized() ? scales_.data() : nullptr,
          bias_.size() == 0 ? nullptr : reinterpret_cast<const float*>(bias_.data())};
}

Expected<PackedMatrix> Pack(const QuantizedMatrix& matrix, std::span<const float> bias) {
  assert(bias.empty() || bias.size() == matrix.rows);
  PackedMatrix packed;
  SLUICE_ASSIGN(packed.layout_, PackedLayout::Create(matrix.format, matrix.rows, matrix.cols));
  const PackedLayout& layout = packed.layout_;
  SLUICE_ASSIGN(packed.weights_, AlignedBuffer::Create(layout.weight_bytes()));
  SLUICE_ASSIGN(packed.scales_, AlignedBuffer::Create(layout.scale_bytes()));
  const WeightType type = matrix.format.type;
  if (type == WeightType::kInt4) {
    std::memset(packed.weights_.data(), kNibbleZero * 0x11, layout.weight_bytes());
  }
  for (size_t row = 0; row < matrix.rows; ++row) {
    const size_t r = row % kStripRows;
    std::byte* strip = packed.weights_.data() + row / kStripRows * layout.strip_weight_bytes();
    for (size_t k = 0; k < matrix.cols; ++k) {
      const size_t i = row * matrix.cols + k;
      if (matrix.format.quantized()) {
        StoreInteger(strip, type, r, k, matrix.integers[i]);
      } else {
        StoreFloat(strip, type, r, k, matrix.values[i]);
      }
    }
    if (!matrix.format.quantized()) continue;
    std::byte* scales = packed.scales_.data() + row / kStripRows * layout.strip_scale_bytes();
    for (size_t b = 0; b < matrix.blocks(); ++b) {
      StoreScale(scales, layout, r, b, matrix.scales[row * matrix.blocks() + b]);
    }
  }
  if (!bias.empty()) {
    SLUICE_ASSIGN(packed.bias_, AlignedBuffer::Create(layout.bias_bytes()));
    std::memcpy(packed.bias_.data(), bias.data(), bias.size_bytes());
  }
  return packed;
}

QuantizedMatrix Unpack(const PackedMatrixView& packed) {
  const PackedLayout& layout = packed.layout;
  QuantizedMatrix matrix;
  matrix.format = layout.format;
  matrix.rows = layout.rows;
  matrix.cols = layout.cols;
  const bool quantized = layout.format.quantized();
  if (quantized) {
    matrix.integers.resize(matrix.rows * matrix.cols);
    matrix.scales.resize(matrix.rows * matrix.blocks());
  } else {
    matrix.values.resize(matrix.rows * matrix.cols);
  }
  for (size_t row = 0; row < matrix.rows; ++row) {
    const size_t r = row % kStripRows;
    const std::byte* strip = packed.strip_weights(row / kStripRows);
    for (size_t k = 0; k < matrix.cols; ++k) {
      const size_t i = row * matrix.cols + k;
      if (quantized) {
        matrix.integers[i] = static_cast<int8_t>(LoadInteger(strip, layout.format.type, r, k));
      } else {
        matrix.values[i] = LoadFloat(strip, layout.format.type, r, k);
      }
    }
    if (!quantized) continue;
    const std::byte* scales = packed.strip_scales(row / kStripRows);
    for (size_t b = 0; b < matrix.blocks(); ++b) {
      matrix.scales[row * matrix.blocks() + b] = LoadScale(scales, layout, r, b);
    }
  }
  return matrix;
}

Status CheckValues(const PackedMatrixView& packed) {
  const PackedLayout& layout = packed.layout;
  const WeightType type = layout.format.type;
  for (size_t row = 0; row < layout.padded_rows(); ++row) {
    const size_t r = row % kStripRows;
    const std::byte* strip = packed.strip_weights(row / kStripRows);
    for (size_t k = 0; k < layout.padded_cols(); ++k) {
      const bool padding = row >= layout.rows || k >= layout.cols;
      if (layout.format.quantized()) {
        const int value = LoadInteger(strip, type, r, k);
        if (value < MinInteger(type) || (padding && value != 0)) {
          return Fail(ErrorCode::kCorrupt, "{} at row {}, column {} is {}, expected {}",
                      padding ? "padding" : "the integer", row, k, value,
                      padding ? "0" : ">= " + std::to_string(MinInteger(type)));
        }
      } else {
        const float value = LoadFloat(strip, type, r, k);
        if (!std::isfinite(value) || (padding && std::bit_cast<uint32_t>(value) != 0)) {
          return Fail(ErrorCode::kCorrupt, "{} at row {}, column {} is {}",
                      padding ? "padding" : "the weight", row, k, value);
        }
      }
    }
    for (size_t b = 0; layout.format.quantized() && b < layout.blocks(); ++b) {
      const float scale = LoadScale(packed.strip_scales(row / kStripRows), layout, r, b);
      if (!std::isfinite(scale) || (row >= layout.rows && scale != 0.0f)) {
        return Fail(ErrorCode::kCorrupt, "the scale of row {}, block {} is {}", row, b, scale);
      }
    }
    if (packed.bias != nullptr) {
      const float bias = packed.bias[row];
      if (!std::isfinite(bias) || (row >= layout.rows && bias != 0.0f)) {
        return Fail(ErrorCode::kCorrupt, "the bias of row {} is {}", row, bias);
      }
    }
  }
  return {};
}

namespace {

// What one vector must be when the matrices `formats` read it.
ActivationFormat FormatFor(std::initializer_list<WeightFormat> formats) {
  ActivationFormat activation = ActivationFormat::kFloat;
  for (const WeightFormat format : formats) {
    if (format.blocked()) return ActivationFormat::kBlock;
    if (format.quantized()) activation = ActivationFormat::kRow;
  }
  return activation;
}

}  // namespace

BlockActivations DefaultActivations(const PerMatrix<WeightFormat>& formats, bool gated) {
  const WeightFormat up = formats[Matrix::kUp];
  return {FormatFor({gated ? formats[Matrix::kGate] : up, up}),
          FormatFor({formats[Matrix::kDown]})};
}

BlockActivations ActivationsFor(const PerMatrix<WeightFormat>& formats, bool gated,
                                ActivationFormat requested) {
  BlockActivations activations = DefaultActivations(formats, gated);
  for (ActivationFormat* a : {&activations.input, &activations.hidden}) {
    if (*a != ActivationFormat::kFloat) *a = requested;
  }
  return activations;
}

Status CheckBlock(const BlockView& block) {
  PerMatrix<WeightFormat> formats;
  for (const Matrix m : kMatrices) {
    if (m == Matrix::kGate && !block.gated) continue;
    const PackedMatrixView& view = block.matrices[m];
    const bool down = m == Matrix::kDown;
    const size_t rows = down ? block.d_model : block.d_ff;
    const size_t cols = down ? block.d_ff : block.d_model;
    if (view.layout.rows != rows || view.layout.cols != cols) {
      return Fail(ErrorCode::kInvalidArgument, "{} is [{}, {}], the block needs [{}, {}]", Name(m),
                  view.layout.rows, view.layout.cols, rows, cols);
    }
    formats[m] = view.layout.format;
  }
  const BlockActivations expected = DefaultActivations(formats, block.gated);
  const auto suits = [](ActivationFormat a, ActivationFormat b) {
    return (a == ActivationFormat::kFloat) == (b == ActivationFormat::kFloat);
  };
  if (!suits(block.input, expected.input) || !suits(block.hidden, expected.hidden)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "activations {} (input) and {} (hidden) do not suit the weights, which take {} and {}",
        Name(block.input), Name(block.hidden), Name(expected.input), Name(expected.hidden));
  }
  return {};
}

}  // namespace sluice
