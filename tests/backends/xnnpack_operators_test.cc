// XNNPACK's operators against sums in double over the very values that they multiply: what is left
// is float rounding, whose bound is derived.
#include "src/backends/xnnpack_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/backends/xnnpack_check.h"
#include "src/backends/xnnpack_weights.h"
#include "src/base/aligned_buffer.h"
#include "src/format/pack.h"
#include "src/kernels/kernels.h"
#include "tests/support/double_block.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using test::Random;
using test::RandomMatrix;
using test::RandomVector;

constexpr WeightFormat kSupported[] = {{WeightType::kF32, 0},   {WeightType::kInt8, 0},
                                       {WeightType::kInt4, 0},  {WeightType::kInt4, 32},
                                       {WeightType::kInt4, 64}, {WeightType::kInt4, 128}};

// What ran: the operator's inputs as it saw them, and its result.
struct Product {
  size_t stride = 0;
  std::vector<float> floats;
  std::vector<int8_t> values;
  std::vector<xnn_quantization_params> params;
  std::vector<float> y;  // [tokens, rows]

  double Input(XnnKernel kernel, size_t token, size_t k) const {
    const size_t i = token * stride + k;
    return TakesQd8(kernel)
               ? (values[i] - params[token].zero_point) * static_cast<double>(params[token].scale)
               : floats[i];
  }
};

class XnnpackOperators : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(InitializeXnnpack());
    convert_.emplace(XnnConvert::Create().value());
  }

  // The operator that the backend would use.
  static XnnKernel KernelFor(const PackedLayout& layout) {
    const XnnKernel kernel = XnnKernelFor(Matrix::kUp, layout).value();
    return kernel == XnnKernel::kQc4w && !XnnKernelWorks(kernel) ? XnnKernel::kQc8w : kernel;
  }

  // `cols` columns of x in rows with stale values where padding may be skipped.
  Product Multiply(const XnnMatrix& matrix, size_t rows, size_t cols, std::span<const float> x) {
    const size_t tokens = x.size() / cols;
    Product p;
    p.stride = RoundUp(cols, kMaxBlock);
    p.floats.assign(tokens * p.stride + kXnnExtraBytes, 0.0f);
    p.values.assign(p.floats.size(), int8_t{77});
    p.params.assign(tokens + kXnnExtraParams, {55, 1e30f});
    p.y.assign(tokens * rows, std::numeric_limits<float>::quiet_NaN());
    for (size_t t = 0; t < tokens; ++t) {
      std::ranges::copy(x.subspan(t * cols, cols), p.floats.begin() + t * p.stride);
    }
    const XnnRows view = {cols, p.stride, p.floats.data(), p.values.data(), p.params.data()};
    EXPECT_TRUE(convert_->Run(view, tokens, nullptr));
    EXPECT_TRUE(matrix.Run(view, tokens, p.y.data(), nullptr));
    return p;
  }

  Product Multiply(const QuantizedMatrix& plain, std::span<const float> x) {
    const PackedMatrix packed = Pack(plain).value();
    const auto matrix = CreateFrom(packed);
    EXPECT_TRUE(matrix) << matrix.error().message;
    return Multiply(*matrix, plain.rows, plain.cols, x);
  }

  static Expected<XnnMatrix> CreateFrom(const PackedMatrix& packed) {
    const PackedLayout& layout = packed.view().layout;
    const auto weights = ToXnnWeights(Matrix::kUp, packed.view(), KernelFor(layout));
    if (!weights) return std::unexpected(weights.error());
    return XnnMatrix::Create(*weights, RoundUp(layout.cols, kMaxBlock));
  }

  std::optional<XnnConvert> convert_;
};

std::vector<size_t> UpTo(size_t n) {
  std::vector<size_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return numbers;
}

// Every output must be within the float rounding of its own sum: integer sums are exact; per block
// (or once) there are a conversion, a product, a correction and an addition; f32 has one rounding
// per term. Each rounding is at most 2^-24 of the sum of magnitudes.
void ExpectExactButForRounding(const Product& p, XnnKernel kernel, const QuantizedMatrix& plain,
                               const std::vector<size_t>& tokens) {
  const test::DoubleMatrix exact = test::DoubleMatrix::From(Pack(plain).value().view());
  const double roundings = TakesQd8(kernel) ? 4.0 * static_cast<double>(plain.blocks()) + 4.0
                                            : static_cast<double>(plain.cols);
  for (const size_t t : tokens) {
    for (size_t r = 0; r < plain.rows; ++r) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (size_t k = 0; k < plain.cols; ++k) {
        const double input = p.Input(kernel, t, k);
        sum += exact.weights[r * plain.cols + k] * input;
        // XNNPACK sums value · weight and corrects by the zero point, so both count.
        const double value = TakesQd8(kernel) ? 256.0 * p.params[t].scale : std::fabs(input);
        magnitude += std::fabs(exact.weights[r * plain.cols + k]) * value;
      }
      ASSERT_NEAR(p.y[t * plain.rows + r], sum, roundings * 0x1p-24 * magnitude)
          << Name(plain.format) << ", token " << t << " of " << tokens.size() << ", row " << r;
    }
  }
}

// In XNNPACK 2024-11-08 the last row of 2, 3, 15, 16, 17, … tokens is zero for qb4w on CPUs with
// AVX-512 VNNI and GFNI, unless more parameters follow than xnnpack.h asks for; and qc4w is garbage
// on CPUs with AMX.
TEST_F(XnnpackOperators, EveryRowOfEveryTokenCountIsRight) {
  constexpr size_t kRows = 70;
  constexpr size_t kCols = 128;
  constexpr size_t kChecked = 17;  // the last tile of any kernel, and a row of the one before
  Random random;
  for (const WeightFormat format : kSupported) {
    const QuantizedMatrix plain = RandomMatrix(random, format, kRows, kCols);
    const PackedMatrix packed = Pack(plain).value();
    const auto matrix = CreateFrom(packed);
    ASSERT_TRUE(matrix) << matrix.error().message;
    for (size_t tokens = 1; tokens <= 64; ++tokens) {
      const std::vector<float> x = RandomVector(random, tokens * kCols);
      const Product p = Multiply(*matrix, kRows, kCols, x);
      std::vector<size_t> checked = UpTo(tokens);
      checked.erase(checked.begin(), checked.end() - std::min(tokens, kChecked));
      ASSERT_NO_FATAL_FAILURE(ExpectExactButForRounding(p, matrix->kernel(), plain, checked));
    }
  }
}

TEST_F(XnnpackOperators, AnyShapeIsRight) {
  Random random;
  for (const WeightFormat format : kSupported) {
    for (const size_t cols : {1, 2, 15, 17, 31, 33, 40, 63, 65, 100, 172, 576}) {
      for (const size_t rows : {1, 15, 17, 33, 65}) {
        const QuantizedMatrix plain = RandomMatrix(random, format, rows, cols);
        const std::vector<float> x = RandomVector(random, 3 * cols);
        const Product p = Multiply(plain, x);
        ASSERT_NO_FATAL_FAILURE(ExpectExactButForRounding(
            p, KernelFor(PackedLayout::Create(format, rows, cols).value()), plain, UpTo(3)));
      }
    }
  }
}

// The qd8 that the operators are given is worth the name: every value within half a step, which is
// 1/255 of the row's range, plus half a step for the rounding of the zero point.
TEST_F(XnnpackOperators, ActivationsAreWithinAStep) {
  constexpr size_t kCols = 100;
  constexpr size_t kTokens = 9;
  Random random;
  const QuantizedMatrix plain = RandomMatrix(random, {WeightType::kInt8, 0}, 4, kCols);
  const std::vector<float> x = RandomVector(random, kTokens * kCols);
  const Product p = Multiply(plain, x);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t token = i / kCols;
    EXPECT_NEAR(p.Input(XnnKernel::kQc8w, token, i % kCols), x[i], 1.01 * p.params[token].scale);
  }
}

QuantizedMatrix Integers(WeightFormat format, size_t rows, std::vector<int8_t> integers,
                         std::vector<float> scales) {
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = integers.size() / rows;
  matrix.integers = std::move(integers);
  matrix.scales = std::move(scales);
  return matrix;
}

// H2 of the cases that broke others.
TEST_F(XnnpackOperators, OddColumnsOfInt4) {
  const std::vector<float> ones(3, 1.0f);
  for (const WeightFormat format :
       {WeightFormat{WeightType::kInt4, 0}, WeightFormat{WeightType::kInt4, 32}}) {
    const Product p = Multiply(Integers(format, 2, {1, 2, 3, 4, 5, 6}, {1.0f, 1.0f}), ones);
    EXPECT_THAT(p.y, testing::Pointwise(testing::FloatNear(1e-4f), {6.0f, 15.0f}));
  }
}

// H1: the row stride when the block does not divide K.
TEST_F(XnnpackOperators, ColumnsThatTheBlockDoesNotDivide) {
  for (const uint32_t block : {32u, 64u, 128u}) {
    for (const size_t cols : {1, 2, 31, 33, 40, 48, 63, 65, 100}) {
      const size_t blocks = DivCeil(cols, block);
      const Product p =
          Multiply(Integers({WeightType::kInt4, block}, 2, std::vector<int8_t>(2 * cols, 1),
                            std::vector<float>(2 * blocks, 1.0f)),
                   std::vector<float>(cols, 1.0f));
      const auto want = static_cast<float>(cols);
      EXPECT_THAT(p.y, testing::Pointwise(testing::FloatNear(1e-4f * want), {want, want}));
    }
  }
}

// H3: every block its own scale, for one token and for eight.
TEST_F(XnnpackOperators, ScalesBelongToTheirBlocks) {
  const Product p = Multiply(
      Integers({WeightType::kInt4, 128}, 2, std::vector<int8_t>(512, 1), {1.0f, 2.0f, 4.0f, 8.0f}),
      std::vector<float>(8 * 256, 1.0f));
  for (size_t t = 0; t < 8; ++t) {
    EXPECT_NEAR(p.y[2 * t], 384.0f, 0.01f);
    EXPECT_NEAR(p.y[2 * t + 1], 1536.0f, 0.01f);
  }
}

// XNNPACK itself takes none of these scales.
TEST_F(XnnpackOperators, BlocksWithScalesZeroSubnormalAndNegative) {
  std::vector<int8_t> integers(4 * 32);
  for (size_t i = 0; i < integers.size(); ++i) integers[i] = static_cast<int8_t>(i % 15) - 7;
  const std::vector<float> scales = {0.0f, 0x1p-130f, -0.5f, 0.5f};
  std::vector<float> x(4 * 32);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 1.0f : 0.0f;
  const Product p = Multiply(Integers({WeightType::kInt4, 32}, 1, integers, scales), x);
  double want = 0.0;
  for (size_t i = 64; i < 128; i += 2) want += integers[i] * (i < 96 ? -0.5 : 0.5);
  ASSERT_NE(want, 0.0);
  EXPECT_NEAR(p.y[0], want, 0.01);
}

TEST_F(XnnpackOperators, NegativeScaleWithMinusEightIsRefused) {
  std::vector<int8_t> integers(64, 1);
  integers[63] = -8;
  const PackedMatrix packed =
      Pack(Integers({WeightType::kInt4, 32}, 1, integers, {1.0f, -0.5f})).value();
  const auto matrix = CreateFrom(packed);
  ASSERT_FALSE(matrix);
  EXPECT_EQ(matrix.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(matrix.error().message,
              testing::AllOf(testing::HasSubstr("up row 0, block 1 is -0.5"),
                             testing::HasSubstr("-8"), testing::HasSubstr("positive")));
}

TEST_F(XnnpackOperators, ScaleThatIsNotFiniteIsRefused) {
  const PackedMatrix packed = Pack(Integers({WeightType::kInt4, 32}, 1, std::vector<int8_t>(32, 1),
                                            {std::numeric_limits<float>::infinity()}))
                                  .value();
  const auto matrix = CreateFrom(packed);
  ASSERT_FALSE(matrix);
  EXPECT_EQ(matrix.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(matrix.error().message, testing::HasSubstr("the scale of up row 0, block 0 is inf"));
}

// H7, activation side: 255 / range overflows for the second token. The third is as large as XNNPACK
// bears; for the fourth max − min overflows, which must not touch its neighbours.
TEST_F(XnnpackOperators, TinyAndHugeTokens) {
  constexpr size_t kCols = 64;
  constexpr size_t kRows = 5;
  Random random;
  for (const WeightFormat format : kSupported) {
    const QuantizedMatrix plain = RandomMatrix(random, format, kRows, kCols);
    std::vector<float> x = RandomVector(random, 5 * kCols);
    std::fill_n(x.begin() + kCols, kCols, 0.0f);
    x[kCols + 7] = 1e-39f;
    for (size_t k = 0; k < kCols; ++k) x[2 * kCols + k] *= 1e32f;
    for (size_t k = 0; k < kCols; ++k) x[3 * kCols + k] = k % 2 == 0 ? 3e38f : -3e38f;
    const Product p = Multiply(plain, x);
    for (size_t r = 0; r < kRows; ++r) EXPECT_NEAR(p.y[kRows + r], 0.0f, 1e-37f);
    const XnnKernel kernel = KernelFor(PackedLayout::Create(format, kRows, kCols).value());
    ASSERT_NO_FATAL_FAILURE(ExpectExactButForRounding(p, kernel, plain, {0, 2, 4}));
  }
}

TEST_F(XnnpackOperators, TheSelfCheckPassesWhereOperatorsAreRight) {
  // Every operator but qc4w, which this version gets wrong on CPUs with AMX, works everywhere.
  EXPECT_TRUE(XnnKernelWorks(XnnKernel::kF32));
  EXPECT_TRUE(XnnKernelWorks(XnnKernel::kQc8w));
  EXPECT_TRUE(XnnKernelWorks(XnnKernel::kQb4w));
}

}  // namespace
}  // namespace sluice
