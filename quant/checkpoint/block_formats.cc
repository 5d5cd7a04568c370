#include "quant/checkpoint/block_formats.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "src/base/half.h"

namespace sluice {
namespace {

// The structs below are files' bytes.
static_assert(std::endian::native == std::endian::little);

// ---- Blocks of 32: one scale, and in the _1 types a minimum ----
// Value j of the 4- and 5-bit types is the low nibble of byte j for j < 16, else the high nibble of
// byte j - 16. The fifth bit is bit j of `high`. The _0 types are signed: the integer less half its
// range. No struct has padding: every member is at most 2-byte aligned.

struct Q40Block {
  F16 scale;
  uint8_t nibbles[16];
};
static_assert(sizeof(Q40Block) == 18);

struct Q41Block {
  F16 scale;
  F16 minimum;
  uint8_t nibbles[16];
};
static_assert(sizeof(Q41Block) == 20);

struct Q50Block {
  F16 scale;
  uint8_t high[4];
  uint8_t nibbles[16];
};
static_assert(sizeof(Q50Block) == 22);

struct Q51Block {
  F16 scale;
  F16 minimum;
  uint8_t high[4];
  uint8_t nibbles[16];
};
static_assert(sizeof(Q51Block) == 24);

struct Q80Block {
  F16 scale;
  int8_t values[32];
};
static_assert(sizeof(Q80Block) == 34);

// ---- Super-blocks of 256 ----
// Eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum, in units of the
// super-block's f16 `scale` and `minimum`. Sub-block s takes the low (s even) or high (s odd)
// nibbles of the 32 bytes from 32·(s/2); its fifth bits are bit s of the 32 bytes of `high`.

struct Q4KBlock {
  F16 scale;
  F16 minimum;
  uint8_t scales[12];
  uint8_t nibbles[128];
};
static_assert(sizeof(Q4KBlock) == 144);

struct Q5KBlock {
  F16 scale;
  F16 minimum;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t nibbles[128];
};
static_assert(sizeof(Q5KBlock) == 176);

// Two halves of 128; in each, quarter g takes the low (g < 2) or high nibbles of the 32 bytes from
// 32·(g mod 2) and bits 2g, 2g + 1 of the half's 32 bytes of `high`. Signed: less 32. Sixteen
// consecutive values share an 8-bit scale, in units of the super-block's.
struct Q6KBlock {
  uint8_t nibbles[128];
  uint8_t high[64];
  int8_t scales[16];
  F16 scale;
};
static_assert(sizeof(Q6KBlock) == 210);

constexpr size_t kSmall = 32;
constexpr size_t kSuper = 256;

// Nibble `j` of 32 in the order described above.
int Nibble(const uint8_t (&nibbles)[16], size_t j) {
  return j < 16 ? nibbles[j] & 0xF : nibbles[j - 16] >> 4;
}

int FifthBit(const uint8_t (&high)[4], size_t j) { return ((high[j / 8] >> (j % 8)) & 1) << 4; }

void DecodeBlock(const Q40Block& b, float* out) {
  const float scale = ToFloat(b.scale);
  for (size_t j = 0; j < kSmall; ++j) {
    out[j] = static_cast<float>(Nibble(b.nibbles, j) - 8) * scale;
  }
}

void DecodeBlock(const Q41Block& b, float* out) {
  const float scale = ToFloat(b.scale);
  const float minimum = ToFloat(b.minimum);
  for (size_t j = 0; j < kSmall; ++j) {
    out[j] = static_cast<float>(Nibble(b.nibbles, j)) * scale + minimum;
  }
}

void DecodeBlock(const Q50Block& b, float* out) {
  const float scale = ToFloat(b.scale);
  for (size_t j = 0; j < kSmall; ++j) {
    out[j] = static_cast<float>((Nibble(b.nibbles, j) | FifthBit(b.high, j)) - 16) * scale;
  }
}

void DecodeBlock(const Q51Block& b, float* out) {
  const float scale = ToFloat(b.scale);
  const float minimum = ToFloat(b.minimum);
  for (size_t j = 0; j < kSmall; ++j) {
    out[j] = static_cast<float>(Nibble(b.nibbles, j) | FifthBit(b.high, j)) * scale + minimum;
  }
}

void DecodeBlock(const Q80Block& b, float* out) {
  const float scale = ToFloat(b.scale);
  for (size_t j = 0; j < kSmall; ++j) out[j] = static_cast<float>(b.values[j]) * scale;
}

struct ScaleAndMinimum {
  float scale;
  float minimum;
};

// The 6-bit pair of sub-block `s` of Q4_K and Q5_K. Bytes 0-3 hold scales 0-3 and bytes 4-7 minima
// 0-3 in their low six bits; the pairs 4-7 have their low four bits in bytes 8-11 (scale low
// nibble, minimum high) and their top two in the spare bits of bytes 0-3 and 4-7.
template <class Block>
ScaleAndMinimum SubBlock(const Block& b, size_t s) {
  int scale = 0;
  int minimum = 0;
  if (s < 4) {
    scale = b.scales[s] & 0x3F;
    minimum = b.scales[s + 4] & 0x3F;
  } else {
    scale = (b.scales[s + 4] & 0xF) | ((b.scales[s - 4] >> 6) << 4);
    minimum = (b.scales[s + 4] >> 4) | ((b.scales[s] >> 6) << 4);
  }
  return {ToFloat(b.scale) * static_cast<float>(scale),
          ToFloat(b.minimum) * static_cast<float>(minimum)};
}

void DecodeBlock(const Q4KBlock& b, float* out) {
  for (size_t s = 0; s < 8; ++s) {
    const auto [scale, minimum] = SubBlock(b, s);
    const uint8_t* nibbles = b.nibbles + 32 * (s / 2);
    const int shift = s % 2 == 0 ? 0 : 4;
    for (size_t j = 0; j < 32; ++j) {
      out[32 * s + j] = scale * static_cast<float>((nibbles[j] >> shift) & 0xF) - minimum;
    }
  }
}

void DecodeBlock(const Q5KBlock& b, float* out) {
  for (size_t s = 0; s < 8; ++s) {
    const auto [scale, minimum] = SubBlock(b, s);
    const uint8_t* nibbles = b.nibbles + 32 * (s / 2);
    const int shift = s % 2 == 0 ? 0 : 4;
    for (size_t j = 0; j < 32; ++j) {
      const int value = ((nibbles[j] >> shift) & 0xF) | (((b.high[j] >> s) & 1) << 4);
      out[32 * s + j] = scale * static_cast<float>(value) - minimum;
    }
  }
}

void DecodeBlock(const Q6KBlock& b, float* out) {
  const float super = ToFloat(b.scale);
  for (size_t half = 0; half < 2; ++half) {
    for (size_t g = 0; g < 4; ++g) {
      const uint8_t* nibbles = b.nibbles + 64 * half + 32 * (g % 2);
      const uint8_t* high = b.high + 32 * half;
      const size_t base = 128 * half + 32 * g;
      const int shift = g < 2 ? 0 : 4;
      for (size_t j = 0; j < 32; ++j) {
        const size_t group = (base + j) / 16;
        const float scale = super * static_cast<float>(b.scales[group]);
        const int value = ((nibbles[j] >> shift) & 0xF) | (((high[j] >> (2 * g)) & 3) << 4);
        out[base + j] = scale * static_cast<float>(value - 32);
      }
    }
  }
}

// The verb of the table: blocks may lie at any address.
template <class Block, size_t kValues>
void Decode(const std::byte* blocks, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    Block block;
    std::memcpy(&block, blocks + i * sizeof(Block), sizeof(Block));
    DecodeBlock(block, out + i * kValues);
  }
}

void DecodeF32(const std::byte* values, size_t count, float* out) {
  std::memcpy(out, values, count * sizeof(float));
}

template <class Half>
void DecodeHalf(const std::byte* values, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) {
    Half h;
    std::memcpy(&h, values + i * sizeof(h), sizeof(h));
    out[i] = ToFloat(h);
  }
}

template <class Block, size_t kValues>
constexpr BlockFormat Readable(uint32_t number, std::string_view name) {
  return {number, name, kValues, sizeof(Block), Decode<Block, kValues>};
}

constexpr BlockFormat kFormats[] = {
    {0, "F32", 1, 4, DecodeF32},
    {1, "F16", 1, 2, DecodeHalf<F16>},
    Readable<Q40Block, kSmall>(2, "Q4_0"),
    Readable<Q41Block, kSmall>(3, "Q4_1"),
    Readable<Q50Block, kSmall>(6, "Q5_0"),
    Readable<Q51Block, kSmall>(7, "Q5_1"),
    Readable<Q80Block, kSmall>(8, "Q8_0"),
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    Readable<Q4KBlock, kSuper>(12, "Q4_K"),
    Readable<Q5KBlock, kSuper>(13, "Q5_K"),
    Readable<Q6KBlock, kSuper>(14, "Q6_K"),
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, DecodeHalf<Bf16>},
    {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};

}  // namespace

std::span<const BlockFormat> BlockFormats() { return kFormats; }

const BlockFormat* FindBlockFormat(std::string_view name) {
  const BlockFormat* found = std::ranges::find(kFormats, name, &BlockFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

const BlockFormat* FindGgmlType(uint32_t number) {
  const BlockFormat* found = std::ranges::find(kFormats, number, &BlockFormat::ggml_type);
  return found == std::end(kFormats) ? nullptr : found;
}

std::string_view ReadableBlockFormats() {
  static const std::string names = [] {
    std::string list;
    for (const BlockFormat& format : kFormats) {
      if (format.decode == nullptr) continue;
      if (!list.empty()) list += ", ";
      list += format.name;
    }
    return list;
  }();
  return names;
}

}  // namespace sluice
