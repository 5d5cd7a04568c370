// Double-precision arithmetic against plain loops and known values.
#include "quant/analysis/reference_block.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

TEST(Linear, IsTheSumOfProducts) {
  test::Random random;
  auto pool = ThreadPool::Create(3);
  ASSERT_TRUE(pool.has_value());
  for (const auto& [tokens, out, in] :
       std::vector<std::array<size_t, 3>>{{1, 1, 1}, {3, 64, 7}, {2, 65, 100}, {5, 200, 33}}) {
    const size_t stride = in + 3;
    const std::vector<float> weights = test::RandomVector(random, out * stride);
    const std::vector<float> bias = test::RandomVector(random, out);
    const std::vector<float> x = test::RandomVector(random, tokens * in);
    const MatrixView<const float> view(weights.data(), out, in, stride);
    const DoubleMatrix wide = ToDouble({x.data(), tokens, in});
    const DoubleMatrix y = Linear(wide, view, bias, &*pool);
    const DoubleMatrix plain = Linear(wide, view, {}, nullptr);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t o = 0; o < out; ++o) {
        double sum = 0;
        for (size_t k = 0; k < in; ++k) {
          sum += static_cast<double>(x[t * in + k]) * weights[o * stride + k];
        }
        ASSERT_NEAR(plain(t, o), sum, 1e-12);
        ASSERT_NEAR(y(t, o), sum + bias[o], 1e-12);
      }
    }
  }
}

TEST(Linear, DoesNotDependOnThreads) {
  test::Random random;
  const std::vector<float> weights = test::RandomVector(random, 300 * 50);
  const DoubleMatrix x = ToDouble({weights.data(), 20, 50});
  auto pool = ThreadPool::Create(3);
  ASSERT_TRUE(pool.has_value());
  EXPECT_EQ(Linear(x, {weights.data(), 300, 50}, {}, nullptr),
            Linear(x, {weights.data(), 300, 50}, {}, &*pool));
}

// Values of SPEC's table at 1, of CASES H10 and H11, to the digits given there.
TEST(Activate, HasTheValuesOfTheFormulas) {
  EXPECT_NEAR(Activate(Activation::kSilu, 1), .731059, 5e-7);
  EXPECT_NEAR(Activate(Activation::kGeluTanh, 1), .841192, 5e-7);
  EXPECT_NEAR(Activate(Activation::kGelu, 1), .841345, 5e-7);
  EXPECT_EQ(Activate(Activation::kRelu, 1), 1);
  EXPECT_EQ(Activate(Activation::kRelu2, 2), 4);
  EXPECT_EQ(Activate(Activation::kSigmoid, 0), 0.5);
  EXPECT_EQ(Activate(Activation::kIdentity, -3), -3);
  EXPECT_NEAR(Activate(Activation::kSilu, -1.2784645), -.2784645, 1e-7);  // its minimum
  EXPECT_EQ(Activate(Activation::kRelu, -1), 0);
  EXPECT_EQ(Activate(Activation::kRelu2, -1), 0);
}

TEST(Activate, IsFiniteAndSmallFarOut) {
  for (const Activation a : kActivations) {
    if (a == Activation::kIdentity) continue;
    for (const double x : {-1000.0, -104.0, -89.0, -88.0}) {
      EXPECT_NEAR(Activate(a, x), 0, 1e-30) << Name(a) << "(" << x << ")";
    }
    EXPECT_TRUE(std::isnan(Activate(a, std::nan("")))) << Name(a);
    const double at_1000 = a == Activation::kSigmoid ? 1 : a == Activation::kRelu2 ? 1e6 : 1000;
    EXPECT_EQ(Activate(a, 1000), at_1000) << Name(a);
  }
}

TEST(Activate, KeepsItsRelativePrecisionInTheNegativeTail) {
  // Φ(−10) = 7.619853024160526e-24 (tables of the normal distribution).
  EXPECT_NEAR(Activate(Activation::kGelu, -10) / (-10 * 7.619853024160526e-24), 1, 1e-12);
  // (1 + tanh u) / 2 = e^2u / (1 + e^2u).
  const double e = std::exp(2 * std::sqrt(2 / std::numbers::pi) * (-6 - 0.044715 * 216));
  EXPECT_NEAR(Activate(Activation::kGeluTanh, -6) / (-6 * e / (1 + e)), 1, 1e-12);
}

// The quantizer of activations as the design states it: q = round(x · (127 / amax)), half to even,
// times amax / 127.
std::vector<double> Expected8(const std::vector<float>& x, size_t block) {
  std::vector<double> values;
  for (size_t begin = 0; begin < x.size(); begin += block) {
    const size_t end = std::min(x.size(), begin + block);
    float amax = 0;
    for (size_t k = begin; k < end; ++k) amax = std::max(amax, std::fabs(x[k]));
    for (size_t k = begin; k < end; ++k) {
      const float q = amax == 0 ? 0 : std::nearbyint(x[k] * (127.0f / amax));
      values.push_back(static_cast<double>(q) * static_cast<double>(amax / 127.0f));
    }
  }
  return values;
}

TEST(QuantizeActivations, RoundsAsTheKernelsDo) {
  test::Random random;
  for (const size_t n : {1, 31, 32, 33, 100, 129}) {
    std::vector<float> x = test::RandomVector(random, 2 * n);
    for (size_t k = 0; k < n / 2; ++k) x[k] = 0;
    const DoubleMatrix wide = ToDouble({x.data(), 2, n});
    for (const auto& [format, block] :
         {std::pair{ActivationFormat::kRow, n}, std::pair{ActivationFormat::kBlock, size_t{32}}}) {
      const DoubleMatrix rounded = QuantizeActivations(wide, format, nullptr);
      for (size_t t = 0; t < 2; ++t) {
        const auto expected = Expected8({x.begin() + t * n, x.begin() + (t + 1) * n}, block);
        for (size_t k = 0; k < n; ++k) {
          ASSERT_EQ(rounded(t, k), expected[k]) << Name(format) << " n = " << n << ", " << k;
        }
      }
    }
    EXPECT_EQ(QuantizeActivations(wide, ActivationFormat::kFloat, nullptr), wide);
  }
}

TEST(QuantizeActivations, ARowBeyondF32IsNotANumber) {
  DoubleMatrix x(2, 40);
  x.fill(1);
  x(0, 35) = 1e300;
  const DoubleMatrix rounded = QuantizeActivations(x, ActivationFormat::kBlock, nullptr);
  EXPECT_TRUE(std::isnan(rounded(0, 0)));
  EXPECT_EQ(rounded(1, 0), 127.0 * static_cast<double>(1.0f / 127.0f));
}

}  // namespace
}  // namespace sluice
