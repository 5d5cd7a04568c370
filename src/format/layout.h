// What the bytes of a packed matrix mean: the R16K4 layout.
//
// A matrix is `[out, in]`, N rows by K columns, y = W·x. Rows are cut into strips of 16. Within a
// strip the weights lie in ascending K, 64-byte lines one after the other:
//
//   int8   a line is 4 K values:  byte 4r + j is row r, column k + j
//   int4   a line is 8 K values:  byte 4r + j has row r, column k + j in its low nibble and column
//          k + 4 + j in its high nibble; a nibble is the integer + 8
//   f32    a line is 1 K value:   16 floats, one per row
//   bf16   half a line is 1 K value
//
// so that a 32-bit lane holds four consecutive K values of one row: what VPDPBUSD and SDOT consume.
// Scales lie in a plane of their own in the same order: for each strip, for each block along K, 16
// scales (bf16), or for each strip 16 (f32) when a scale serves the whole row.
//
// Rows are padded to 16 and K to the weight block, at least 32. Padding is weight 0 (nibble 8,
// float 0) with scale 0. Every plane is padded at its end to 64 bytes. Every reader and writer of
// packed bytes gets its strides from PackedLayout: the packer, the kernels, the file.
#ifndef SLUICE_SRC_FORMAT_LAYOUT_H_
#define SLUICE_SRC_FORMAT_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "sluice/error.h"
#include "sluice/format.h"
#include "src/base/aligned_buffer.h"

namespace sluice {

inline constexpr size_t kStripRows = 16;
inline constexpr size_t kTileK = 4;
inline constexpr size_t kLineBytes = kStripRows * kTileK;
static_assert(kLineBytes == kAlignment);

// The name of this layout in files. A change of any byte's meaning is a new name.
inline constexpr const char kLayoutName[] = "R16K4";
inline constexpr int kLayoutVersion = 1;

// K up to which an int32 holds every dot product of int8 values: 131072·127·127 < 2^31, also when a
// foreign file brings −128 (131072·128·127 = 2^31 − 2^24).
inline constexpr size_t kMaxK = 131072;
// Bound on rows, so that no product of sizes overflows 64 bits.
inline constexpr uint64_t kMaxRows = uint64_t{1} << 32;

struct PackedLayout {
  WeightFormat format;
  size_t rows = 0;  // N, out
  size_t cols = 0;  // K, in

  // Errors: an empty matrix, K beyond kMaxK, rows beyond kMaxRows, more bytes than this machine can
  // address. Of what it returns, no size overflows.
  static Expected<PackedLayout> Create(WeightFormat format, size_t rows, size_t cols);

  constexpr size_t strips() const { return DivCeil(rows, kStripRows); }
  constexpr size_t padded_rows() const { return strips() * kStripRows; }
  // Blocks are powers of two, so it takes no division: kernels ask in every tile.
  constexpr size_t padded_cols() const {
    const size_t block = format.block > kActivationBlock ? format.block : kActivationBlock;
    return (cols + block - 1) & ~(block - 1);
  }
  // Values along K under one scale; the whole padded row when there is one scale a row.
  constexpr size_t block() const { return format.blocked() ? format.block : padded_cols(); }
  // Blocks that hold at least one real value. There is never a block of padding only.
  constexpr size_t blocks() const { return padded_cols() / block(); }

  // Bits that one weight takes, its scale not counted.
  constexpr size_t weight_bits() const {
    switch (format.type) {
      case WeightType::kF32:
        return 32;
      case WeightType::kBf16:
        return 16;
      case WeightType::kInt8:
        return 8;
      case WeightType::kInt4:
        return 4;
    }
    return 0;
  }
  constexpr size_t strip_weight_bytes() const {
    return kStripRows * padded_cols() * weight_bits() / 8;
  }
  constexpr size_t scale_bytes_each() const {
    return !format.quantized() ? 0 : format.blocked() ? sizeof(uint16_t) : sizeof(float);
  }
  constexpr size_t strip_scale_bytes() const { return kStripRows * blocks() * scale_bytes_each(); }

  // The sizes of the stored planes.
  constexpr size_t weight_bytes() const { return strips() * strip_weight_bytes(); }
  constexpr size_t scale_bytes() const {
    return RoundUp(strips() * strip_scale_bytes(), kAlignment);
  }
  constexpr size_t bias_bytes() const { return padded_rows() * sizeof(float); }

  friend constexpr bool operator==(const PackedLayout&, const PackedLayout&) = default;
};

}  // namespace sluice

#endif  // SLUICE_SRC_FORMAT_LAYOUT_H_
