#include "src/backends/xnnpack_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "src/base/half.h"
#include "src/base/status.h"
#include "src/format/quantized_matrix.h"

namespace sluice {
namespace {

// XNNPACK refuses a block's scale that is not positive and normal. The same weights in other terms:
// a block of zeros for the scale 0 (and for a subnormal one, which XNNPACK's kernels, run with
// subnormals flushed, would take for 0), negated integers for a negative scale.
Status FitBlock(Matrix matrix, size_t row, size_t block, std::span<int8_t> integers, float& scale) {
  if (!std::isfinite(scale)) {
    return Fail(ErrorCode::kCorrupt, "xnnpack: the scale of {} row {}, block {} is {}",
                Name(matrix), row, block, scale);
  }
  if (std::fabs(scale) < std::numeric_limits<float>::min()) {
    std::ranges::fill(integers, int8_t{0});
    scale = 1.0f;
  }
  if (scale > 0.0f) return {};
  for (int8_t& integer : integers) {
    if (integer == MinInteger(WeightType::kInt4)) {
      return Fail(ErrorCode::kUnsupported,
                  "xnnpack: the scale of {} row {}, block {} is {} and an integer is {}; XNNPACK "
                  "takes positive scales only, and its int4 has no {}",
                  Name(matrix), row, block, scale, integer, -integer);
    }
    integer = static_cast<int8_t>(-integer);
  }
  scale = -scale;
  return {};
}

Status FitBlocks(Matrix matrix, QuantizedMatrix& plain) {
  const size_t blocks = plain.blocks();
  for (size_t row = 0; row < plain.rows; ++row) {
    for (size_t b = 0; b < blocks; ++b) {
      const size_t first = b * plain.block();
      const size_t count = std::min(plain.block(), plain.cols - first);
      SLUICE_TRY(FitBlock(matrix, row, b,
                          std::span(plain.integers).subspan(row * plain.cols + first, count),
                          plain.scales[row * blocks + b]));
    }
  }
  return {};
}

template <class T>
std::vector<T> PadColumns(std::span<const T> values, size_t rows, size_t cols, size_t padded) {
  std::vector<T> result(rows * padded);
  for (size_t r = 0; r < rows; ++r) {
    std::ranges::copy(values.subspan(r * cols, cols), result.begin() + r * padded);
  }
  return result;
}

// Even columns into low nibbles; what lies beyond the last column is 0, stored as 8.
std::vector<uint8_t> ToNibbles(const QuantizedMatrix& plain, size_t padded) {
  constexpr int kZero = 8;
  std::vector<uint8_t> nibbles(plain.rows * padded / 2, kZero * 0x11);
  for (size_t r = 0; r < plain.rows; ++r) {
    for (size_t k = 0; k < plain.cols; ++k) {
      const int nibble = plain.integers[r * plain.cols + k] + kZero;
      uint8_t& byte = nibbles[(r * padded + k) / 2];
      byte =
          static_cast<uint8_t>(k % 2 == 0 ? (byte & 0xF0) | nibble : (byte & 0x0F) | nibble << 4);
    }
  }
  return nibbles;
}

}  // namespace

Expected<XnnKernel> XnnKernelFor(Matrix matrix, const PackedLayout& layout) {
  const WeightFormat format = layout.format;
  switch (format.type) {
    case WeightType::kF32:
      return XnnKernel::kF32;
    case WeightType::kBf16:
      return Fail(ErrorCode::kUnsupported,
                  "xnnpack: {} is {}; XNNPACK has no fully-connected operator for bf16 weights",
                  Name(matrix), Name(format));
    case WeightType::kInt4:
      return format.blocked() ? XnnKernel::kQb4w : XnnKernel::kQc4w;
    case WeightType::kInt8:
      break;
  }
  if (format.blocked()) {
    return Fail(ErrorCode::kUnsupported,
                "xnnpack: {} is {}; XNNPACK has no fully-connected operator for blocked int8",
                Name(matrix), Name(format));
  }
  if (layout.cols > kXnnMaxInt8K) {
    return Fail(ErrorCode::kUnsupported,
                "xnnpack: {} is {} with {} columns; XNNPACK's int32 sums are exact up to {}",
                Name(matrix), Name(format), layout.cols, kXnnMaxInt8K);
  }
  return XnnKernel::kQc8w;
}

Expected<XnnWeights> ToXnnWeights(Matrix matrix, const PackedMatrixView& packed, XnnKernel kernel) {
  QuantizedMatrix plain = Unpack(packed);
  XnnWeights weights;
  weights.kernel = kernel;
  weights.rows = plain.rows;
  weights.cols = packed.layout.padded_cols();
  switch (kernel) {
    case XnnKernel::kF32:
      weights.floats = PadColumns<float>(plain.values, plain.rows, plain.cols, weights.cols);
      break;
    case XnnKernel::kQc8w:
      weights.integers = PadColumns<int8_t>(plain.integers, plain.rows, plain.cols, weights.cols);
      weights.scales = std::move(plain.scales);
      break;
    case XnnKernel::kQc4w:
      weights.nibbles = ToNibbles(plain, weights.cols);
      weights.scales = std::move(plain.scales);
      break;
    case XnnKernel::kQb4w:
      SLUICE_TRY(FitBlocks(matrix, plain));
      weights.block = plain.block();
      weights.nibbles = ToNibbles(plain, weights.cols);
      weights.block_scales.reserve(plain.scales.size());
      for (const float scale : plain.scales) weights.block_scales.push_back(ToBf16(scale).bits);
      break;
  }
  return weights;
}

}  // namespace sluice
