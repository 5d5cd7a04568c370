// Round-to-nearest quantization: error bounds, tails, zeros, extremes, refusals.
#include "quant/quantizer/quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "src/base/half.h"
#include "src/format/pack.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

const size_t kAwkwardCols[] = {1, 2, 31, 32, 33, 40, 48, 63, 65, 100, 128, 129, 576};

std::vector<WeightFormat> QuantizedFormats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat f : kWeightFormats) {
    if (f.quantized()) formats.push_back(f);
  }
  return formats;
}

QuantizedMatrix Quantize(const std::vector<float>& weights, size_t rows, WeightFormat format,
                         const ThreadPool* pool = nullptr) {
  auto matrix = QuantizeRtn({weights.data(), rows, weights.size() / rows}, format, pool);
  EXPECT_TRUE(matrix.has_value()) << matrix.error().message;
  return *std::move(matrix);
}

// Through the packed form and back, as a user of the file sees the weights.
std::vector<float> RoundTrip(const std::vector<float>& weights, size_t rows, WeightFormat format) {
  const auto packed = Pack(Quantize(weights, rows, format));
  EXPECT_TRUE(packed.has_value()) << packed.error().message;
  return Dequantize(Unpack(packed->view()));
}

std::vector<float> Normal(test::Random& random, size_t n) {
  std::vector<float> values(n);
  for (float& v : values) v = random.Normal();
  return values;
}

// What the scale must be when the block is no multiple of anything.
float PlainScale(float amax, WeightFormat format) {
  return StoredScale(amax / (format.type == WeightType::kInt4 ? 7.0f : 127.0f), format);
}

TEST(QuantizeRtn, RoundsEveryWeightToTheNearestMultipleOfItsBlocksScale) {
  test::Random random;
  for (const WeightFormat format : QuantizedFormats()) {
    for (const size_t cols : kAwkwardCols) {
      SCOPED_TRACE(Name(format) + ", K = " + std::to_string(cols));
      const size_t rows = 19;
      const std::vector<float> weights = Normal(random, rows * cols);
      const QuantizedMatrix matrix = Quantize(weights, rows, format);
      const std::vector<float> back = Dequantize(matrix);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = 0; c < cols; ++c) {
          const size_t begin = c / matrix.block() * matrix.block();
          float amax = 0;
          for (size_t k = begin; k < std::min(cols, begin + matrix.block()); ++k) {
            amax = std::max(amax, std::fabs(weights[r * cols + k]));
          }
          const float scale = matrix.scale(r, c);
          // One value alone, or two, may be exact multiples of another scale.
          if (cols - begin > 2 && matrix.block() > 2) {
            ASSERT_EQ(scale, PlainScale(amax, format));
          }
          // Half a step, and the product's rounding. (The extreme is at most 127.5 rounded scales,
          // so clamping costs nothing.)
          const size_t i = r * cols + c;
          ASSERT_LE(std::fabs(back[i] - weights[i]), scale / 2 + amax * 0x1p-23f);
        }
      }
      EXPECT_THAT(matrix.integers, Each(AllOf(::testing::Ge(MinInteger(format.type)),
                                              ::testing::Le(MaxInteger(format.type)))));
    }
  }
}

TEST(QuantizeRtn, RoundsTheScaleBeforeTheIntegers) {
  // amax / 7 = 1.00195…, which bf16 rounds to 1: against the rounded scale 2.504 is 3, against the
  // other it would be 2.
  std::vector<float> weights(32, 0.0f);
  weights[0] = 7.01f;
  weights[1] = 2.504f;
  const QuantizedMatrix matrix = Quantize(weights, 1, {WeightType::kInt4, 32});
  EXPECT_EQ(matrix.scales[0], 1.0f);
  EXPECT_EQ(matrix.integers[0], 7);
  EXPECT_EQ(matrix.integers[1], 3);
}

TEST(QuantizeRtn, RoundsTiesToEven) {
  std::vector<float> weights = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.25f};
  const QuantizedMatrix matrix = Quantize(weights, 1, {WeightType::kInt8, 0});
  EXPECT_EQ(matrix.scales[0], 1.0f);
  EXPECT_EQ(matrix.integers, (std::vector<int8_t>{127, 0, 2, 2, 0, -2, -2, 0}));
}

TEST(QuantizeRtn, TakesATailsScaleFromItsRealValues) {
  // SmolLM2's d = 576 with blocks of 128: the last block holds 64 values.
  test::Random random;
  std::vector<float> weights = Normal(random, 576);
  for (size_t k = 512; k < 576; ++k) weights[k] = 0.001f * weights[k];
  float amax = 0;
  for (size_t k = 512; k < 576; ++k) amax = std::max(amax, std::fabs(weights[k]));
  const QuantizedMatrix matrix = Quantize(weights, 1, {WeightType::kInt4, 128});
  ASSERT_EQ(matrix.scales.size(), 5u);
  EXPECT_EQ(matrix.scales[4], PlainScale(amax, matrix.format));
}

TEST(QuantizeRtn, DoesNotDependOnThreads) {
  test::Random random;
  const size_t rows = 77;
  const std::vector<float> weights = Normal(random, rows * 100);
  auto pool = ThreadPool::Create(4);
  ASSERT_TRUE(pool.has_value());
  for (const WeightFormat format : kWeightFormats) {
    const QuantizedMatrix alone = Quantize(weights, rows, format);
    const QuantizedMatrix shared = Quantize(weights, rows, format, &*pool);
    EXPECT_EQ(alone.integers, shared.integers) << Name(format);
    EXPECT_EQ(alone.scales, shared.scales) << Name(format);
    EXPECT_EQ(alone.values, shared.values) << Name(format);
  }
}

TEST(QuantizeRtn, ReadsNothingBetweenTheRowsOfAView) {
  test::Random random;
  const std::vector<float> plain = Normal(random, 3 * 40);
  std::vector<float> wide(3 * 50, std::numeric_limits<float>::quiet_NaN());
  for (size_t r = 0; r < 3; ++r) std::copy_n(&plain[r * 40], 40, &wide[r * 50]);
  for (const WeightFormat format : kWeightFormats) {
    const auto matrix = QuantizeRtn({wide.data(), 3, 40, 50}, format, nullptr);
    ASSERT_TRUE(matrix.has_value()) << matrix.error().message;
    EXPECT_EQ(Dequantize(*matrix), Dequantize(Quantize(plain, 3, format))) << Name(format);
  }
}

TEST(QuantizeRtn, KeepsFloats) {
  test::Random random;
  const std::vector<float> weights = Normal(random, 5 * 33);
  EXPECT_EQ(Dequantize(Quantize(weights, 5, {WeightType::kF32, 0})), weights);
  const std::vector<float> halves = Dequantize(Quantize(weights, 5, {WeightType::kBf16, 0}));
  for (size_t i = 0; i < weights.size(); ++i) EXPECT_EQ(halves[i], ToFloat(ToBf16(weights[i])));
}

// The dot products of a matrix's rows with a vector of ones.
std::vector<double> RowSums(const std::vector<float>& weights, size_t rows) {
  std::vector<double> sums(rows);
  const size_t cols = weights.size() / rows;
  for (size_t i = 0; i < weights.size(); ++i) sums[i / cols] += weights[i];
  return sums;
}

// CASES H1: K that the block does not divide; every row after the first tells a wrong stride.
TEST(HardCases, H1BlockDoesNotDivideK) {
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t cols : kAwkwardCols) {
      const auto k = static_cast<double>(cols);
      EXPECT_EQ(RowSums(RoundTrip(std::vector<float>(2 * cols, 1.0f), 2, format), 2),
                (std::vector<double>{k, k}))
          << Name(format);
    }
  }
}

// CASES H2: two int4 weights a byte and an odd K.
TEST(HardCases, H2OddK) {
  for (const WeightFormat format : kWeightFormats) {
    EXPECT_EQ(RowSums(RoundTrip({1, 2, 3, 4, 5, 6}, 2, format), 2), (std::vector<double>{6, 15}))
        << Name(format);
  }
}

// CASES H3: each block has its own scale, [N][blocks] and not [blocks][N].
TEST(HardCases, H3BlocksHaveTheirOwnScale) {
  std::vector<float> weights;
  for (const float scale : {1.0f, 2.0f, 4.0f, 8.0f}) weights.insert(weights.end(), 128, scale);
  for (const WeightFormat format : kWeightFormats) {
    EXPECT_EQ(RowSums(RoundTrip(weights, 2, format), 2), (std::vector<double>{384, 1536}))
        << Name(format);
  }
}

// CASES H6: zero blocks, rows and matrices are exactly zero and counted.
TEST(HardCases, H6AllZeroBlocks) {
  for (const WeightFormat format : QuantizedFormats()) {
    std::vector<float> weights(3 * 64, 0.0f);
    for (size_t k = 0; k < 32; ++k) weights[k] = 0.1f * static_cast<float>(k) + 1.0f;
    const QuantizedMatrix some = Quantize(weights, 3, format);
    const std::vector<float> back = Dequantize(some);
    for (size_t i = 32; i < back.size(); ++i) ASSERT_EQ(back[i], 0.0f) << Name(format);
    EXPECT_EQ(CountZeroBlocks(some), format.block == 32 ? 5u : 2u) << Name(format);

    const QuantizedMatrix none = Quantize(std::vector<float>(64, -0.0f), 1, format);
    EXPECT_THAT(Dequantize(none), Each(0.0f)) << Name(format);
    EXPECT_EQ(CountZeroBlocks(none), none.blocks()) << Name(format);
  }
}

// CASES H7: 1 / amax overflows.
TEST(HardCases, H7NearZeroBlockBecomesZeros) {
  for (const WeightFormat format : QuantizedFormats()) {
    std::vector<float> weights(32, 0.0f);
    weights[5] = 1e-39f;
    const QuantizedMatrix matrix = Quantize(weights, 1, format);
    EXPECT_THAT(matrix.scales, Each(0.0f));
    EXPECT_THAT(Dequantize(matrix), Each(0.0f));
  }
}

TEST(HardCases, H7FromTheThresholdOnScalesAreNormalAndTheirReciprocalsFinite) {
  for (const WeightFormat format : QuantizedFormats()) {
    for (const float amax : {kMinWeightAmax, 1.7f * kMinWeightAmax, 3.3f * kMinWeightAmax}) {
      std::vector<float> weights(32, 0.0f);
      weights[5] = -amax;
      weights[6] = 0.637f * amax;
      const QuantizedMatrix matrix = Quantize(weights, 1, format);
      EXPECT_GE(matrix.scales[0], FLT_MIN) << Name(format);
      EXPECT_TRUE(std::isfinite(1.0f / matrix.scales[0])) << Name(format);
      EXPECT_NEAR(Dequantize(matrix)[5] / amax, -1.0, 0x1p-8) << Name(format);
    }
    const float below = std::nextafter(kMinWeightAmax, 0.0f);
    EXPECT_THAT(Dequantize(Quantize(std::vector<float>(32, below), 1, format)), Each(0.0f));
  }
}

// CASES H8: scales that fp16 would lose.
TEST(HardCases, H8SmallBlocksKeepTheirPrecision) {
  for (const WeightFormat format : QuantizedFormats()) {
    for (const float amax : {2e-7f, 4e-7f, 3.8e-6f, 1e-20f}) {
      std::vector<float> weights(32);
      for (size_t k = 0; k < 32; ++k) weights[k] = amax * std::cos(static_cast<float>(k));
      const std::vector<float> back = Dequantize(Quantize(weights, 1, format));
      const float step = format.type == WeightType::kInt4 ? 1.0f / 14 : 1.0f / 254;
      for (size_t k = 0; k < 32; ++k) {
        ASSERT_LE(std::fabs(back[k] - weights[k]), amax * (step + 0x1p-8f)) << Name(format);
      }
    }
  }
}

TEST(QuantizeRtn, DoesNotOverflowAtTheLargestFloats) {
  for (const WeightFormat format : QuantizedFormats()) {
    float top = FLT_MAX;
    for (int i = 0; i < 300; ++i, top = std::nextafter(top * 0.9997f, 0.0f)) {
      std::vector<float> weights(32);
      for (size_t k = 0; k < 32; ++k) weights[k] = std::cos(static_cast<float>(k)) * top;
      weights[3] = -top;
      const std::vector<float> back = Dequantize(Quantize(weights, 1, format));
      for (size_t k = 0; k < 32; ++k) {
        ASSERT_TRUE(std::isfinite(back[k])) << Name(format) << " " << top;
        ASSERT_LE(std::fabs(back[k] / top - weights[k] / top), 0.08f) << Name(format) << " " << top;
      }
    }
  }
}

TEST(QuantizeRtn, RefusesWhatIsNotFinite) {
  for (const WeightFormat format : kWeightFormats) {
    for (const float bad : {NAN, -NAN, HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> weights(40 * 50, 1.0f);
      weights[13 * 50 + 41] = bad;
      weights[39 * 50 + 2] = bad;  // another thread's

      auto pool = ThreadPool::Create(2);
      ASSERT_TRUE(pool.has_value());
      const auto matrix = QuantizeRtn({weights.data(), 40, 50}, format, &*pool);
      ASSERT_FALSE(matrix.has_value()) << Name(format);
      EXPECT_EQ(matrix.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(matrix.error().message, HasSubstr("row 13, column 41"));
    }
  }
}

TEST(QuantizeRtn, RefusesFiniteWeightsThatBf16RoundsToInfinity) {
  std::vector<float> weights = {1.0f, 2.0f, 3.0f, -FLT_MAX};
  const auto refused = QuantizeRtn({weights.data(), 2, 2}, {WeightType::kBf16, 0}, nullptr);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("row 1, column 1 is -3.4028235e+38"));
  weights[3] = 3.38e38f;
  EXPECT_TRUE(QuantizeRtn({weights.data(), 2, 2}, {WeightType::kBf16, 0}, nullptr).has_value());
}

TEST(QuantizeRtn, RefusesAnEmptyMatrix) {
  const float nothing = 0;
  for (const WeightFormat format : kWeightFormats) {
    EXPECT_FALSE(QuantizeRtn({&nothing, 0, 3}, format, nullptr).has_value());
    EXPECT_FALSE(QuantizeRtn({&nothing, 3, 0}, format, nullptr).has_value());
  }
}

TEST(IsAllZero, SeesOneWeight) {
  std::vector<float> weights(3 * 40, 0.0f);
  weights[50] = -0.0f;
  EXPECT_TRUE(IsAllZero({weights.data(), 3, 40}));
  weights[119] = 1e-45f;
  EXPECT_FALSE(IsAllZero({weights.data(), 3, 40}));
  EXPECT_TRUE(IsAllZero({weights.data(), 3, 39, 40}));
}

}  // namespace
}  // namespace sluice
