#include "quant/checkpoint/block_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "src/file/safetensors.h"

namespace sluice {
namespace {

std::vector<float> Decode(std::string_view name, const std::vector<uint8_t>& bytes) {
  const BlockFormat* format = FindBlockFormat(name);
  EXPECT_NE(format, nullptr) << name;
  EXPECT_EQ(bytes.size() % format->bytes, 0u) << name;
  const size_t blocks = bytes.size() / format->bytes;
  std::vector<float> values(blocks * format->values, NAN);
  format->decode(std::as_bytes(std::span(bytes)).data(), blocks, values.data());
  return values;
}

// f16 1, 0.5, 2: little-endian.
constexpr std::array<uint8_t, 2> kOne = {0x00, 0x3C};
constexpr std::array<uint8_t, 2> kHalf = {0x00, 0x38};
constexpr std::array<uint8_t, 2> kTwo = {0x00, 0x40};

template <class... Parts>
std::vector<uint8_t> Concat(const Parts&... parts) {
  std::vector<uint8_t> all;
  (all.insert(all.end(), std::begin(parts), std::end(parts)), ...);
  return all;
}

// H13: q[j] = j for j < 16 and 15 − (j − 16) after. A reader that takes nibbles in pairs 2j, 2j +
// 1, or forgets the 8, gives something else.
TEST(Q4_0, ElementsJAndJPlus16ShareAByte) {
  std::vector<uint8_t> nibbles;
  for (int j = 0; j < 16; ++j) nibbles.push_back(static_cast<uint8_t>(j | ((15 - j) << 4)));
  const std::vector<float> values = Decode("Q4_0", Concat(kOne, nibbles));
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(values[static_cast<size_t>(j)], static_cast<float>(j - 8));
    EXPECT_EQ(values[static_cast<size_t>(j + 16)], static_cast<float>(7 - j));
  }
}

// H13: all 256 values of a byte, in each of the 16 places.
TEST(Q4_0, EveryByteValueInEveryPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    for (size_t place = 0; place < 16; ++place) {
      std::vector<uint8_t> nibbles(16, 0x88);  // zeros
      nibbles[place] = static_cast<uint8_t>(byte);
      const std::vector<float> values = Decode("Q4_0", Concat(kTwo, nibbles));
      for (size_t j = 0; j < 32; ++j) {
        float want = 0.0f;
        if (j == place) want = 2.0f * static_cast<float>(byte % 16 - 8);
        if (j == place + 16) want = 2.0f * static_cast<float>(byte / 16 - 8);
        ASSERT_EQ(values[j], want) << "byte " << byte << " place " << place << " value " << j;
      }
    }
  }
}

TEST(Q4_1, AddsTheMinimum) {
  std::vector<uint8_t> nibbles(16, 0);
  nibbles[3] = 0xF1;
  const std::vector<float> values = Decode("Q4_1", Concat(kHalf, kTwo, nibbles));
  for (size_t j = 0; j < 32; ++j) {
    const float q = j == 3 ? 1.0f : j == 19 ? 15.0f : 0.0f;
    EXPECT_EQ(values[j], 0.5f * q + 2.0f) << j;
  }
}

TEST(Q5_0, BitJOfHighIsTheFifthOfValueJ) {
  for (size_t j = 0; j < 32; ++j) {
    const uint32_t high = uint32_t{1} << j;
    std::array<uint8_t, 4> bytes;
    std::memcpy(bytes.data(), &high, sizeof(high));
    const std::vector<float> values =
        Decode("Q5_0", Concat(kOne, bytes, std::vector<uint8_t>(16, 0x31)));
    for (size_t i = 0; i < 32; ++i) {
      const int low = i < 16 ? 1 : 3;
      EXPECT_EQ(values[i], static_cast<float>(i == j ? low : low - 16)) << i << " " << j;
    }
  }
}

TEST(Q5_1, IsUnsignedWithAMinimum) {
  const std::vector<float> values =
      Decode("Q5_1",
             Concat(kHalf, kOne, std::vector<uint8_t>{1, 0, 0, 0x80}, std::vector<uint8_t>(16, 0)));
  for (size_t j = 0; j < 32; ++j) EXPECT_EQ(values[j], j == 0 || j == 31 ? 9.0f : 1.0f) << j;
}

TEST(Q8_0, EveryByteIsSigned) {
  for (int first = 0; first < 256; first += 32) {
    std::vector<uint8_t> bytes;
    for (int j = 0; j < 32; ++j) bytes.push_back(static_cast<uint8_t>(first + j));
    const std::vector<float> values = Decode("Q8_0", Concat(kHalf, bytes));
    for (int j = 0; j < 32; ++j) {
      const int q = first + j < 128 ? first + j : first + j - 256;
      EXPECT_EQ(values[static_cast<size_t>(j)], 0.5f * static_cast<float>(q));
    }
  }
}

// The 6-bit scales and minima: one sub-block at a time, all 64 values of each field.
TEST(Q4_K, EachSubBlockHasItsSixBitScaleAndMinimum) {
  for (size_t s = 0; s < 8; ++s) {
    for (int scale = 0; scale < 64; ++scale) {
      const int minimum = 63 - scale;
      std::array<uint8_t, 12> packed{};
      if (s < 4) {
        packed[s] = static_cast<uint8_t>(scale);
        packed[s + 4] = static_cast<uint8_t>(minimum);
      } else {
        packed[s + 4] = static_cast<uint8_t>(scale % 16 + 16 * (minimum % 16));
        packed[s - 4] = static_cast<uint8_t>(64 * (scale / 16));
        packed[s] = static_cast<uint8_t>(64 * (minimum / 16));
      }
      const std::vector<float> values =
          Decode("Q4_K", Concat(kTwo, kHalf, packed, std::vector<uint8_t>(128, 0x33)));
      for (size_t i = 0; i < 256; ++i) {
        const float want = i / 32 == s ? 2.0f * static_cast<float>(scale) * 3.0f -
                                             0.5f * static_cast<float>(minimum)
                                       : 0.0f;
        ASSERT_EQ(values[i], want) << "sub-block " << s << " scale " << scale << " value " << i;
      }
    }
  }
}

// Every type's random blocks against values that a Python script works out one by one
// (tests/data/ggml/make_blocks.py): the same bits.
TEST(BlockFormats, AgreeWithIndependentDecoding) {
  const auto file = SafetensorsFile::Open(SLUICE_TEST_DATA "/ggml/blocks.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  size_t types = 0;
  for (const BlockFormat& format : BlockFormats()) {
    if (format.decode == nullptr || format.values == 1) continue;
    ++types;
    const SafetensorsEntry* blocks = file->Find(std::string(format.name) + ".blocks");
    const SafetensorsEntry* values = file->Find(std::string(format.name) + ".values");
    ASSERT_NE(blocks, nullptr) << format.name;
    ASSERT_NE(values, nullptr) << format.name;
    const size_t count = blocks->bytes.size() / format.bytes;
    ASSERT_EQ(blocks->bytes.size() % format.bytes, 0u) << format.name;
    std::vector<float> got(count * format.values);
    ASSERT_EQ(values->bytes.size(), got.size() * sizeof(float)) << format.name;
    format.decode(blocks->bytes.data(), count, got.data());
    for (size_t i = 0; i < got.size(); ++i) {
      uint32_t want = 0;
      std::memcpy(&want, values->bytes.data() + 4 * i, 4);
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), want) << format.name << " value " << i;
    }
  }
  EXPECT_EQ(types, 8u);
}

// A block may lie at any address in a file whose alignment is 1.
TEST(BlockFormats, ReadAtOddAddresses) {
  for (const BlockFormat& format : BlockFormats()) {
    if (format.decode == nullptr) continue;
    std::vector<std::byte> aligned(2 * format.bytes);
    for (size_t i = 0; i < aligned.size(); ++i) aligned[i] = static_cast<std::byte>(i % 37);
    std::vector<std::byte> shifted(aligned.size() + 1);
    std::ranges::copy(aligned, shifted.begin() + 1);
    std::vector<float> want(2 * format.values);
    std::vector<float> got(2 * format.values);
    format.decode(aligned.data(), 2, want.data());
    format.decode(shifted.data() + 1, 2, got.data());
    EXPECT_EQ(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)), 0) << format.name;
  }
}

TEST(BlockFormats, PlainFloats) {
  EXPECT_EQ(Decode("F32", {0, 0, 0x80, 0x3F}), std::vector<float>{1.0f});
  EXPECT_EQ(Decode("F16", {0x00, 0x3C, 0x01, 0x80}), (std::vector<float>{1.0f, -0x1p-24f}));
  EXPECT_EQ(Decode("BF16", {0x80, 0x3F, 0x01, 0x00}), (std::vector<float>{1.0f, 0x1p-133f}));
}

TEST(BlockFormats, NamesAndNumbersAreUnique) {
  for (const BlockFormat& format : BlockFormats()) {
    EXPECT_EQ(FindBlockFormat(format.name), &format) << format.name;
    EXPECT_EQ(FindGgmlType(format.ggml_type), &format) << format.name;
  }
  EXPECT_EQ(FindGgmlType(4), nullptr);  // Q4_2, withdrawn
  EXPECT_EQ(FindGgmlType(9999), nullptr);
  EXPECT_EQ(ReadableBlockFormats(),
            "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16");
}

}  // namespace
}  // namespace sluice
