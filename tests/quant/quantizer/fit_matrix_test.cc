// Every method on awkward sizes and awkward inputs: never worse than rtn on tokens it did not see,
// better on correlated inputs, the same for any number of threads.
#include "quant/quantizer/fit_matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quant/quantizer/quantizer.h"
#include "src/base/half.h"
#include "tests/support/correlated.h"
#include "tests/support/emulated.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using test::CorrelatedInputs;
using test::FloatMatrix;
using test::NormalMatrix;
using ::testing::HasSubstr;

constexpr WeightFormat kInt4Block = {WeightType::kInt4, 32};

std::vector<WeightFormat> QuantizedFormats() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat f : kWeightFormats) {
    if (f.quantized() && (!test::kEmulated || f == kInt4Block)) formats.push_back(f);
  }
  return formats;
}

LossMoments MomentsOf(const FloatMatrix& x) {
  LossMoments moments = LossMoments::Zero(x.cols);
  AddSecondMoments(x.view(), moments, nullptr);
  Mirror(moments);
  return moments;
}

// Σ ‖(V − W)·x‖² / Σ ‖W·x‖² over the tokens of x, each product formed in double.
double OutputError(const FloatMatrix& weights, const std::vector<float>& values,
                   const FloatMatrix& x) {
  double error = 0;
  double norm = 0;
  for (size_t t = 0; t < x.rows; ++t) {
    for (size_t r = 0; r < weights.rows; ++r) {
      double e = 0;
      double y = 0;
      for (size_t c = 0; c < weights.cols; ++c) {
        const double w = weights(r, c);
        e += (values[r * weights.cols + c] - w) * x(t, c);
        y += w * x(t, c);
      }
      error += e * e;
      norm += y * y;
    }
  }
  return error / norm;
}

MatrixFit Fit(const FloatMatrix& weights, WeightFormat format, const LossMoments& fit,
              const LossMoments& held_out, Method method, const ThreadPool* pool = nullptr) {
  auto result = FitMatrix(weights.view(), format, fit, held_out, {.method = method}, pool);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return *std::move(result);
}

void ExpectStorable(const QuantizedMatrix& m) {
  for (const int8_t q : m.integers) {
    ASSERT_GE(q, MinInteger(m.format.type));
    ASSERT_LE(q, MaxInteger(m.format.type));
  }
  for (const float s : m.scales) {
    ASSERT_TRUE(std::isfinite(s));
    ASSERT_EQ(s, StoredScale(s, m.format));
  }
}

TEST(FitMatrix, IsNeverWorseThanRtnOnHeldOutTokensAtAnySize) {
  test::Random random;
  for (const WeightFormat format : QuantizedFormats()) {
    for (const size_t n : {1, 15, 17, 31, 33, 172}) {
      SCOPED_TRACE(Name(format) + ", K = " + std::to_string(n));
      const FloatMatrix weights = NormalMatrix(random, n == 172 ? 33 : 17, n);
      CorrelatedInputs inputs(random, n);
      const FloatMatrix test_tokens = inputs.Draw(64);
      const LossMoments fit = MomentsOf(inputs.Draw(4 * n + 64));
      const LossMoments held_out = MomentsOf(test_tokens);
      for (const Method method : kMethods) {
        const MatrixFit result = Fit(weights, format, fit, held_out, method);
        ExpectStorable(result.matrix);
        EXPECT_LE(result.loss, result.loss_rtn) << Name(method);
        EXPECT_EQ(result.note.empty(), result.method == method) << result.note;
        const auto rtn = QuantizeRtn(weights.view(), format, nullptr);
        EXPECT_LE(OutputError(weights, Dequantize(result.matrix), test_tokens),
                  OutputError(weights, Dequantize(*rtn), test_tokens) * (1 + 1e-4))
            << Name(method);
      }
    }
  }
}

TEST(FitMatrix, EachMethodIsBetterThanTheOneBeforeOnCorrelatedInputs) {
  test::Random random;
  for (const WeightFormat format : QuantizedFormats()) {
    const bool int4 = format.type == WeightType::kInt4;
    SCOPED_TRACE(Name(format));
    const FloatMatrix weights = NormalMatrix(random, 64, 576);
    CorrelatedInputs inputs(random, 576);
    const LossMoments fit = MomentsOf(inputs.Draw(2048));
    const FloatMatrix test_tokens = inputs.Draw(256);
    const LossMoments held_out = MomentsOf(test_tokens);
    PerMatrix<double> error;  // one for each method
    for (const Method method : kMethods) {
      const MatrixFit result = Fit(weights, format, fit, held_out, method);
      EXPECT_EQ(result.method, method) << result.note;
      error.items[static_cast<size_t>(method)] =
          OutputError(weights, Dequantize(result.matrix), test_tokens);
    }
    EXPECT_LT(error.items[1], (int4 ? 0.92 : 0.995) * error.items[0]);
    EXPECT_LT(error.items[2], 0.55 * error.items[1]);
  }
}

TEST(FitMatrix, ReportsTheLossThatItsMatrixHas) {
  test::Random random;
  const FloatMatrix weights = NormalMatrix(random, 20, 100);
  CorrelatedInputs inputs(random, 100);
  const LossMoments fit = MomentsOf(inputs.Draw(512));
  const FloatMatrix test_tokens = inputs.Draw(64);
  const MatrixFit result = Fit(weights, kInt4Block, fit, MomentsOf(test_tokens), Method::kGptq);
  const auto rtn = QuantizeRtn(weights.view(), kInt4Block, nullptr);
  const double ratio = OutputError(weights, Dequantize(result.matrix), test_tokens) /
                       OutputError(weights, Dequantize(*rtn), test_tokens);
  EXPECT_NEAR(result.loss / result.loss_rtn, ratio, 1e-3 * ratio);
}

TEST(FitMatrix, GivesTheSameBitsForAnyNumberOfThreads) {
  test::Random random;
  const FloatMatrix weights = NormalMatrix(random, 200, 172);
  CorrelatedInputs inputs(random, 172);
  const FloatMatrix tokens = inputs.Draw(400);
  const FloatMatrix misses = NormalMatrix(random, 400, 200, 0.1f);
  const LossMoments held_out = MomentsOf(inputs.Draw(50));
  for (const WeightFormat format : QuantizedFormats()) {
    SCOPED_TRACE(Name(format));
    QuantizedMatrix first;
    for (const size_t threads : {1, 2, 3, 7}) {
      const auto pool = ThreadPool::Create(threads);
      ASSERT_TRUE(pool.has_value());
      LossMoments fit = LossMoments::Zero(172);
      AddSecondMoments(tokens.view(), fit, &*pool);
      AddCrossMoments(misses.view(), tokens.view(), fit.shift, &*pool);
      Mirror(fit);
      const QuantizedMatrix matrix =
          Fit(weights, format, fit, held_out, Method::kGptq, &*pool).matrix;
      if (threads == 1) first = matrix;
      EXPECT_EQ(first.integers, matrix.integers) << threads;
      EXPECT_EQ(first.scales, matrix.scales) << threads;
    }
  }
}

TEST(FitMatrix, TakesDeadAndDuplicateChannelsAndFewTokens) {
  test::Random random;
  const FloatMatrix weights = NormalMatrix(random, 40, 100);
  for (const size_t tokens : {1, 3, 40, 300}) {
    SCOPED_TRACE(tokens);
    CorrelatedInputs inputs(random, 100);
    FloatMatrix x = inputs.Draw(tokens);
    FloatMatrix other = inputs.Draw(50);
    for (FloatMatrix* m : {&x, &other}) {
      for (size_t t = 0; t < m->rows; ++t) {
        for (size_t c = 10; c < 20; ++c) (*m)(t, c) = 0;            // dead
        for (size_t c = 20; c < 30; ++c) (*m)(t, c) = (*m)(t, 60);  // equal
        (*m)(t, 31) = -2 * (*m)(t, 32);
      }
    }
    const MatrixFit result =
        Fit(weights, kInt4Block, MomentsOf(x), MomentsOf(other), Method::kGptq);
    ExpectStorable(result.matrix);
    EXPECT_LE(result.loss, result.loss_rtn);
    if (tokens == 300) {
      EXPECT_EQ(result.method, Method::kGptq) << result.note;
    }
    // What no token showed must still be near its weight: other texts may show it.
    const std::vector<float> values = Dequantize(result.matrix);
    for (size_t r = 0; r < weights.rows; ++r) {
      for (size_t c = 10; c < 20; ++c) {
        EXPECT_NEAR(values[r * 100 + c], weights(r, c),
                    std::fabs(result.matrix.scale(r, c)) * 1.2 + 1);
      }
    }
  }
}

TEST(FitMatrix, FallsBackAndSaysSoWhereInputsAreZero) {
  test::Random random;
  const FloatMatrix weights = NormalMatrix(random, 5, 33);
  const LossMoments zero = MomentsOf(FloatMatrix(8, 33));
  const MatrixFit result = Fit(weights, kInt4Block, zero, zero, Method::kGptq);
  EXPECT_EQ(result.method, Method::kMse);
  EXPECT_THAT(result.note, HasSubstr("cannot be factorized"));
}

TEST(FitMatrix, FallsBackToRtnWhereTheHeldOutTokensAreOfAnotherKind) {
  test::Random random;
  const size_t n = 64;
  // Calibration never shows what the held-out tokens consist of, and what the large weights are
  // for: mse's scales leave them out.
  FloatMatrix weights = NormalMatrix(random, 32, n);
  for (size_t r = 0; r < 32; ++r) {
    for (size_t c = 0; c < n; c += 2) weights(r, c) *= 4;
  }
  FloatMatrix x = NormalMatrix(random, 256, n);
  FloatMatrix other = NormalMatrix(random, 256, n);
  for (size_t t = 0; t < 256; ++t) {
    for (size_t c = 0; c < n; ++c) (c % 2 == 0 ? x : other)(t, c) *= 1e-4f;
    for (size_t c = 0; c + 1 < n; c += 2) x(t, c) = 0.01f * x(t, c + 1);
  }
  const MatrixFit result = Fit(weights, kInt4Block, MomentsOf(x), MomentsOf(other), Method::kGptq);
  EXPECT_EQ(result.method, Method::kRtn);
  EXPECT_THAT(result.note, HasSubstr("gptq's loss on held-out tokens"));
  EXPECT_THAT(result.note, HasSubstr("mse's loss on held-out tokens"));
  EXPECT_EQ(result.loss, result.loss_rtn);
}

TEST(FitMatrix, GivesMultiplesOfAScaleBackBitForBit) {
  test::Random random;
  FloatMatrix weights(8, 96);
  for (size_t r = 0; r < 8; ++r) {
    for (size_t b = 0; b < 3; ++b) {
      const float scale = ToFloat(ToBf16(std::exp(random.Normal())));
      for (size_t k = 0; k < 32; ++k) {
        weights(r, b * 32 + k) = scale * static_cast<float>(random.Integer(-8, 7));
      }
      weights(r, b * 32) = -8 * scale;
      weights(r, b * 32 + 1) = scale;
    }
  }
  const LossMoments moments = MomentsOf(CorrelatedInputs(random, 96).Draw(300));
  for (const Method method : kMethods) {
    EXPECT_EQ(Dequantize(Fit(weights, kInt4Block, moments, moments, method).matrix), weights.values)
        << Name(method);
  }
}

TEST(FitMatrix, FollowsTargetsThatAreNotTheWeightsOwn) {
  // y = W·x + 0.5·V·x: the moments' shift moves the solution to W + 0.5·V.
  test::Random random;
  const FloatMatrix weights = NormalMatrix(random, 32, 64);
  const FloatMatrix other = NormalMatrix(random, 32, 64);
  const FloatMatrix x = CorrelatedInputs(random, 64).Draw(512);
  FloatMatrix miss(512, 32);  // W·x − y
  FloatMatrix moved = weights;
  for (size_t r = 0; r < 32; ++r) {
    for (size_t c = 0; c < 64; ++c) moved(r, c) += 0.5f * other(r, c);
    for (size_t t = 0; t < 512; ++t) {
      for (size_t c = 0; c < 64; ++c) miss(t, r) -= 0.5f * other(r, c) * x(t, c);
    }
  }
  LossMoments moments = MomentsOf(x);
  AddCrossMoments(miss.view(), x.view(), moments.shift, nullptr);
  for (const float v : miss.values) moments.rest += static_cast<double>(v) * v;
  const MatrixFit result = Fit(weights, {WeightType::kInt8, 32}, moments, moments, Method::kGptq);
  EXPECT_EQ(result.method, Method::kGptq) << result.note;
  EXPECT_LT(OutputError(moved, Dequantize(result.matrix), x), 1e-3);
  EXPECT_LT(result.loss, 0.02 * result.loss_rtn);
}

TEST(FitMatrix, RefusesNanInWeightsAndInMoments) {
  test::Random random;
  FloatMatrix weights = NormalMatrix(random, 4, 33);
  LossMoments moments = MomentsOf(NormalMatrix(random, 50, 33));
  weights(2, 5) = std::numeric_limits<float>::quiet_NaN();
  const auto bad = FitMatrix(weights.view(), kInt4Block, moments, moments, {}, nullptr);
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error().message, HasSubstr("row 2, column 5 is nan"));

  weights(2, 5) = 0;
  FloatMatrix x = NormalMatrix(random, 50, 33);
  x(7, 3) = std::numeric_limits<float>::infinity();
  const auto infinite = FitMatrix(weights.view(), kInt4Block, MomentsOf(x), moments, {}, nullptr);
  ASSERT_FALSE(infinite.has_value());
  EXPECT_THAT(infinite.error().message, HasSubstr("not finite"));

  const auto narrow = FitMatrix(weights.view(), kInt4Block, MomentsOf(NormalMatrix(random, 9, 32)),
                                moments, {}, nullptr);
  ASSERT_FALSE(narrow.has_value());
  EXPECT_THAT(narrow.error().message, HasSubstr("32 values a token, the matrix 33"));
}

}  // namespace
}  // namespace sluice
