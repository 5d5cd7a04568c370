// H19: NaN, infinity, ties and subnormals on their way through 16 bits.
#include "src/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/support/seed.h"

namespace sluice {
namespace {

uint16_t Bf16Bits(uint32_t f32_bits) { return ToBf16(std::bit_cast<float>(f32_bits)).bits; }

bool IsNaN(uint16_t bf16) { return (bf16 & 0x7FFF) > 0x7F80; }

TEST(Bf16, RoundsTheReportedPatterns) {
  EXPECT_EQ(Bf16Bits(0x7F7FFFFF), 0x7F80);  // FLT_MAX is nearer to infinity than to bf16's largest
  EXPECT_EQ(Bf16Bits(0x7F7F7FFF), 0x7F7F);
  EXPECT_EQ(Bf16Bits(0x00000001), 0x0000);
  EXPECT_EQ(Bf16Bits(0x80000001), 0x8000);
  EXPECT_EQ(Bf16Bits(0x00008000), 0x0000);  // a tie between 0 and the smallest: to even
  EXPECT_EQ(Bf16Bits(0x00018000), 0x0002);
  EXPECT_EQ(Bf16Bits(0x00008001), 0x0001);  // subnormals are not flushed
  EXPECT_EQ(Bf16Bits(0x3F808000), 0x3F80);  // ties to even, down
  EXPECT_EQ(Bf16Bits(0x3F818000), 0x3F82);  // and up
  EXPECT_EQ(Bf16Bits(0x3F808001), 0x3F81);
}

TEST(Bf16, KeepsNaNAndItsSign) {
  for (const uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0x7FC00000u, 0x7F80FFFFu}) {
    EXPECT_TRUE(IsNaN(Bf16Bits(bits))) << std::hex << bits;
    EXPECT_EQ(Bf16Bits(bits) & 0x8000, 0) << std::hex << bits;
    EXPECT_TRUE(IsNaN(Bf16Bits(bits | 0x80000000u))) << std::hex << bits;
    EXPECT_EQ(Bf16Bits(bits | 0x80000000u) & 0x8000, 0x8000) << std::hex << bits;
  }
}

TEST(Bf16, EveryPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const Bf16 original = {static_cast<uint16_t>(bits)};
    const Bf16 back = ToBf16(ToFloat(original));
    if (IsNaN(original.bits)) {
      // A signalling NaN becomes quiet; all else of it stays.
      ASSERT_EQ(back.bits, original.bits | 0x0040) << std::hex << bits;
    } else {
      ASSERT_EQ(back.bits, original.bits) << std::hex << bits;
    }
  }
}

// Nearest, by comparing distances in double, where both neighbours and the value are exact.
TEST(Bf16, IsTheNearestValue) {
  test::Random random;
  for (int i = 0; i < 200'000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random.engine()()) & 0x7FFFFFFFu;
    if (bits >= 0x7F7F0000u) continue;  // above, the neighbour is infinity
    const double value = std::bit_cast<float>(bits);
    const uint16_t down = static_cast<uint16_t>(bits >> 16);
    const double below = ToFloat(Bf16{down});
    const double above = ToFloat(Bf16{static_cast<uint16_t>(down + 1)});
    const uint16_t got = Bf16Bits(bits);
    if (value - below < above - value) {
      ASSERT_EQ(got, down) << std::hex << bits;
    } else if (value - below > above - value) {
      ASSERT_EQ(got, down + 1) << std::hex << bits;
    } else {
      ASSERT_EQ(got, down + (down & 1)) << std::hex << bits;
    }
    ASSERT_EQ(Bf16Bits(bits | 0x80000000u), got | 0x8000) << std::hex << bits;
  }
}

TEST(F16, EveryPatternHasTheValueOfItsFields) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const int exponent = static_cast<int>(bits >> 10) & 0x1F;
    const int fraction = static_cast<int>(bits & 0x3FF);
    const float value = ToFloat(F16{static_cast<uint16_t>(bits)});
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << std::hex << bits;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), fraction != 0) << std::hex << bits;
      ASSERT_EQ(std::isinf(value), fraction == 0) << std::hex << bits;
    } else if (exponent == 0) {
      ASSERT_EQ(magnitude, std::ldexp(fraction, -24)) << std::hex << bits;
    } else {
      ASSERT_EQ(magnitude, std::ldexp(1024 + fraction, exponent - 25)) << std::hex << bits;
    }
  }
}

}  // namespace
}  // namespace sluice
