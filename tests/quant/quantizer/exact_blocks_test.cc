// Blocks that are integers times one storable scale come back bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "quant/quantizer/quantizer.h"
#include "src/base/half.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

// A random scale of the precision that `format` stores, over many binades.
float RandomScale(test::Random& random, WeightFormat format) {
  const float s = std::ldexp(1.0f + std::fabs(random.Normal()), random.Integer(-60, 40));
  return StoredScale(s, format);
}

// rows · cols weights that are integers in [lowest, highest] times one scale per block.
std::vector<float> Multiples(test::Random& random, WeightFormat format, size_t rows, size_t cols,
                             int lowest, int highest) {
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  for (size_t i = 0; i < rows * cols; ++i) {
    matrix.integers.push_back(static_cast<int8_t>(random.Integer(lowest, highest)));
  }
  for (size_t i = 0; i < rows * matrix.blocks(); ++i) {
    matrix.scales.push_back(RandomScale(random, format));
  }
  return Dequantize(matrix);
}

void ExpectExact(const std::vector<float>& weights, size_t rows, WeightFormat format) {
  const auto matrix = QuantizeRtn({weights.data(), rows, weights.size() / rows}, format, nullptr);
  ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
  const std::vector<float> back = Dequantize(*matrix);
  for (size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(back[i], weights[i]) << "weight " << i;
}

// Every largest integer there can be: blocks need not contain ±7, −8 or ±127.
TEST(ExactBlocks, ComeBackBitForBit) {
  test::Random random;
  for (const WeightFormat format : kWeightFormats) {
    if (!format.quantized()) continue;
    const int top = MaxInteger(format.type);
    for (int highest = 0; highest <= top; highest += format.type == WeightType::kInt4 ? 1 : 7) {
      for (const int lowest : {-highest, MinInteger(format.type), 0}) {
        for (const size_t cols : {1, 5, 32, 72, 300}) {
          SCOPED_TRACE(Name(format) + " [" + std::to_string(lowest) + ", " +
                       std::to_string(highest) + "], K = " + std::to_string(cols));
          ExpectExact(Multiples(random, format, 6, cols, lowest, highest), 6, format);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ExactBlocks, EveryMagnitudeOfTheExtremeIsFound) {
  test::Random random;
  for (const WeightFormat format : kWeightFormats) {
    if (!format.quantized()) continue;
    for (int k = 1; k <= -MinInteger(format.type); ++k) {
      const float s = RandomScale(random, format);
      // 1 keeps any other scale from serving: the integers have no common factor.
      std::vector<float> weights(32, 0.0f);
      weights[7] = static_cast<float>(-k) * s;
      weights[9] = s;
      SCOPED_TRACE(Name(format) + ", k = " + std::to_string(k));
      ExpectExact(weights, 1, format);
    }
  }
}

// What was dequantized from a file survives being quantized again.
TEST(ExactBlocks, QuantizingIsIdempotent) {
  test::Random random;
  std::vector<float> weights(40 * 200);
  for (float& w : weights) w = random.Normal(0.03f);
  for (const WeightFormat format : kWeightFormats) {
    const auto matrix = QuantizeRtn({weights.data(), 40, 200}, format, nullptr);
    ASSERT_TRUE(matrix.has_value());
    SCOPED_TRACE(Name(format));
    ExpectExact(Dequantize(*matrix), 40, format);
  }
}

// One value that does not fit ends the exactness, and the plain rule takes over.
TEST(ExactBlocks, AreNotImaginedWhereOneValueDiffers) {
  std::vector<float> weights(32);
  for (int k = 0; k < 32; ++k) weights[static_cast<size_t>(k)] = static_cast<float>(k % 6);
  weights[31] = 2.25f;
  const auto matrix =
      QuantizeRtn({weights.data(), 1, 32}, WeightFormat{WeightType::kInt4, 32}, nullptr);
  ASSERT_TRUE(matrix.has_value());
  EXPECT_EQ(matrix->scales[0], ToFloat(ToBf16(5.0f / 7.0f)));
}

// int4 has −8 but not 8.
TEST(ExactBlocks, EightIsExactOnlyWithAMinus) {
  std::vector<float> weights(32, 0.0f);
  for (int k = 0; k < 16; ++k) weights[static_cast<size_t>(k)] = static_cast<float>(k - 8) * 0.5f;
  const WeightFormat format = {WeightType::kInt4, 32};
  ExpectExact(weights, 1, format);
  const auto minus = QuantizeRtn({weights.data(), 1, 32}, format, nullptr);
  EXPECT_EQ(minus->scales[0], 0.5f);
  EXPECT_EQ(minus->integers[0], -8);
  weights[20] = 4.0f;
  const auto both = QuantizeRtn({weights.data(), 1, 32}, format, nullptr);
  EXPECT_EQ(both->scales[0], ToFloat(ToBf16(4.0f / 7.0f)));
  EXPECT_EQ(both->integers[0], -7);
  EXPECT_EQ(both->integers[20], 7);
}

}  // namespace
}  // namespace sluice
