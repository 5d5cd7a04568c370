#include "src/format/pack.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>
#include <format>
#include <optional>

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

namespace {

// The integer or float at row r, column k of a strip, as a message shows it, if no quantizer writes
// it there.
std::optional<std::string> BadWeight(const std::byte* strip, WeightType type, size_t r, size_t k,
                                     bool padding) {
  if (type == WeightType::kInt8 || type == WeightType::kInt4) {
    const int value = LoadInteger(strip, type, r, k);
    if (padding ? value == 0 : value >= MinInteger(type)) return std::nullopt;
    return std::to_string(value);
  }
  const float value = LoadFloat(strip, type, r, k);
  if (padding ? std::bit_cast<uint32_t>(value) == 0 : std::isfinite(value)) return std::nullopt;
  return std::format("{}", value);
}

// Rows [row_begin, row_end) and columns [col_begin, col_end) of the padded matrix, one by one.
Status CheckWeightRange(const PackedMatrixView& packed, size_t row_begin, size_t row_end,
                        size_t col_begin, size_t col_end) {
  const PackedLayout& layout = packed.layout;
  for (size_t row = row_begin; row < row_end; ++row) {
    const std::byte* strip = packed.strip_weights(row / kStripRows);
    for (size_t k = col_begin; k < col_end; ++k) {
      const bool padding = row >= layout.rows || k >= layout.cols;
      const auto bad = BadWeight(strip, layout.format.type, row % kStripRows, k, padding);
      if (!bad) continue;
      if (padding) {
        return Fail(ErrorCode::kCorrupt, "padding at row {}, column {} is {}, expected 0", row, k,
                    *bad);
      }
      return Fail(ErrorCode::kCorrupt, "the weight at row {}, column {} is {}, expected {}", row, k,
                  *bad,
                  layout.format.quantized() ? std::format(">= {}", MinInteger(layout.format.type))
                                            : "a finite number");
    }
  }
  return {};
}

// Whether a plane of floats has an infinity or a NaN: all exponent bits set.
template <class Word>
bool HasNonFinite(const std::byte* plane, size_t bytes, Word exponent) {
  bool found = false;
  for (size_t i = 0; i < bytes; i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, plane + i, sizeof(word));
    found |= (word & exponent) == exponent;
  }
  return found;
}

// Whether a strip may hold a value out of range, seen without taking it apart.
bool SuspectStrip(const std::byte* strip, size_t bytes, WeightType type) {
  switch (type) {
    case WeightType::kInt8:
      return std::memchr(strip, 0x80, bytes) != nullptr;
    case WeightType::kInt4:
      return false;  // every nibble is a value
    case WeightType::kF32:
      return HasNonFinite<uint32_t>(strip, bytes, 0x7F800000u);
    case WeightType::kBf16:
      return HasNonFinite<uint16_t>(strip, bytes, 0x7F80u);
  }
  return true;
}

}  // namespace

Status CheckWeights(const PackedMatrixView& packed) {
  const PackedLayout& layout = packed.layout;
  for (size_t strip = 0; strip < layout.strips(); ++strip) {
    const size_t begin = strip * kStripRows;
    const size_t end = begin + kStripRows;
    if (SuspectStrip(packed.strip_weights(strip), layout.strip_weight_bytes(),
                     layout.format.type)) {
      SLUICE_TRY(CheckWeightRange(packed, begin, end, 0, layout.padded_cols()));
    }
    SLUICE_TRY(CheckWeightRange(packed, begin, end, layout.cols, layout.padded_cols()));
  }
  return CheckWeightRange(packed, layout.rows, layout.padded_rows(), 0, layout.padded_cols());
}

Status CheckScales(const PackedMatrixView& packed) {
  const PackedLayout& layout = packed.layout;
  if (!layout.format.quantized()) return {};
  for (size_t row = 0; row < layout.padded_rows(); ++row) {
    for (size_t b = 0; b < layout.blocks(); ++b) {
      const float scale =
          LoadScale(packed.strip_scales(row / kStripRows), layout, row % kStripRows, b);
      if (!std::isfinite(scale) || (row >= layout.rows && std::bit_cast<uint32_t>(scale) != 0)) {
        return Fail(ErrorCode::kCorrupt, "the scale of row {}, block {} is {}, expected {}", row, b,
                    scale, row < layout.rows ? "a finite number" : "0 in padding");
      }
    }
  }
  for (size_t i = layout.strips() * layout.strip_scale_bytes(); i < layout.scale_bytes(); ++i) {
    if (packed.scales[i] != std::byte{0}) {
      return Fail(ErrorCode::kCorrupt, "padding at byte {} is {}, expected 0", i,
                  std::to_integer<int>(packed.scales[i]));
    }
  }
  return {};
}

Status CheckBias(const PackedMatrixView& packed) {
  const PackedLayout& layout = packed.layout;
  for (size_t row = 0; packed.bias != nullptr && row < layout.padded_rows(); ++row) {
    const float bias = packed.bias[row];
    if (!std::isfinite(bias) || (row >= layout.rows && std::bit_cast<uint32_t>(bias) != 0)) {
      return Fail(ErrorCode::kCorrupt, "the bias of row {} is {}, expected {}", row, bias,
                  row < layout.rows ? "a finite number" : "0 in padding");
    }
  }
  return {};
}

Status CheckValues(const PackedMatrixView& packed) {
  SLUICE_TRY(CheckWeights(packed));
  SLUICE_TRY(CheckScales(packed));
  return CheckBias(packed);
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
