// Accuracy of the non-linearities against double precision, over the whole range of floats, and
// equality of every target with the scalar reference.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "src/kernels/activation.h"
#include "src/kernels/kernels.h"
#include "src/kernels/reference.h"
#include "tests/support/emulated.h"
#include "tests/support/kernel_targets.h"

namespace sluice {
namespace {

using test::AttainableKernels;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The formulas of SPEC in long double, arranged so that no step loses relative precision.
long double Exact(Activation activation, long double x) {
  const auto sigmoid = [](long double v) {
    return v >= 0 ? 1 / (1 + std::exp(-v)) : std::exp(v) / (1 + std::exp(v));
  };
  switch (activation) {
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
    case Activation::kGelu:
      return 0.5L * x * std::erfc(-x / std::numbers::sqrt2_v<long double>);
    case Activation::kGeluTanh: {
      const long double root = std::sqrt(2 / std::numbers::pi_v<long double>);
      return x * sigmoid(2 * root * (x + 0.044715L * x * x * x));
    }
    case Activation::kSilu:
      return x * sigmoid(x);
    case Activation::kSigmoid:
      return sigmoid(x);
    case Activation::kIdentity:
      return x;
  }
  return 0;
}

// |got − want| in units of the last place of `want` as a float; of the smallest subnormal below
// that.
double UlpError(float got, long double want) {
  const auto magnitude = static_cast<double>(std::fabs(want));
  if (magnitude > std::numeric_limits<float>::max()) {
    return std::isinf(got) && (got > 0) == (want > 0) ? 0.0 : 1e9;
  }
  int exponent = 0;
  std::frexp(std::max(magnitude, 0x1p-126), &exponent);
  const double ulp = std::ldexp(1.0, exponent - 24);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want)) / ulp;
}

std::vector<float> Apply(const Kernels& kernels, Activation activation,
                         const std::vector<float>& x) {
  std::vector<float> y(x.size());
  CombineArgs args;
  args.activation = activation;
  args.up = x.data();
  args.out = y.data();
  args.n = x.size();
  kernels.combine(args);
  return y;
}

// Every 4099th float of both signs (under an emulator every 32771st), and every float near where
// something changes.
std::vector<float> Samples() {
  constexpr uint64_t kStep = test::kEmulated ? 32771 : 4099;
  std::vector<float> x;
  for (uint64_t bits = 0; bits <= 0x7F800000u; bits += kStep) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    x.push_back(-x.back());
  }
  for (const float around : {0.0f, 0.5f, 1.0f, 3.0f, 5.5f, 8.0f, 10.5f, 11.0f, 13.9f, 14.2f, 15.0f,
                             16.0f, 17.0f, 87.33655f, 88.72284f, 103.97208f, 104.0f, 128.0f}) {
    const uint32_t centre = std::bit_cast<uint32_t>(around);
    for (uint32_t bits = centre < 500 ? 0 : centre - 500; bits < centre + 500; ++bits) {
      x.push_back(std::bit_cast<float>(bits));
      x.push_back(-x.back());
    }
  }
  return x;
}

class ActivationTest : public testing::TestWithParam<Activation> {};

TEST_P(ActivationTest, WithinStatedUlp) {
  const std::vector<float> x = Samples();
  const std::vector<float> y = Apply(*AttainableKernels().front(), GetParam(), x);
  double worst = 0;
  float worst_x = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i])) continue;
    const double error = UlpError(y[i], Exact(GetParam(), x[i]));
    if (error > worst) {
      worst = error;
      worst_x = x[i];
    }
  }
  RecordProperty("worst_ulp", std::to_string(worst));
  std::cout << Name(GetParam()) << ": " << worst << " ulp at " << worst_x << "\n";
  if (AttainableKernels().front()->exact) {
    EXPECT_LE(worst, MaxUlp(GetParam())) << "at x = " << worst_x;
  }
}

TEST_P(ActivationTest, EveryTargetEqualsReference) {
  const std::vector<float> x = Samples();
  std::vector<float> want(x.size());
  for (size_t i = 0; i < x.size(); ++i) want[i] = reference::Activate(GetParam(), x[i]);
  for (const Kernels* kernels : AttainableKernels()) {
    const std::vector<float> got = Apply(*kernels, GetParam(), x);
    for (size_t i = 0; i < x.size(); ++i) {
      if (kernels->exact) {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
            << kernels->target << " at x = " << x[i];
      } else {
        // Without FMA the low parts of the arguments are lost: 1e-5 of the value, as far as it is
        // normal.
        ASSERT_NEAR(got[i], want[i], 2e-5 * std::fabs(want[i]) + 1e-37)
            << kernels->target << " at x = " << x[i];
      }
    }
  }
}

// CASES H10.
TEST_P(ActivationTest, InfinitiesAndNan) {
  const bool sigmoid = GetParam() == Activation::kSigmoid;
  const bool identity = GetParam() == Activation::kIdentity;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Kernels* kernels : AttainableKernels()) {
    const std::vector<float> y =
        Apply(*kernels, GetParam(),
              {kInfinity, -kInfinity, nan, -nan, -1000.0f, -104.0f, -89.0f, 1000.0f});
    EXPECT_EQ(y[0], sigmoid ? 1.0f : kInfinity) << kernels->target;
    EXPECT_EQ(y[1], identity ? -kInfinity : 0.0f) << kernels->target;
    EXPECT_TRUE(std::isnan(y[2])) << kernels->target;
    EXPECT_TRUE(std::isnan(y[3])) << kernels->target;
    for (const float v : {y[4], y[5], y[6], y[7]}) EXPECT_TRUE(std::isfinite(v)) << kernels->target;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ActivationTest, testing::ValuesIn(kActivations),
                         [](const auto& test) { return std::string(Name(test.param)); });

// CASES H10, H11 in numbers.
TEST(Activations, KnownValues) {
  const auto at = [](Activation activation, float x) {
    return Apply(*AttainableKernels().front(), activation, {x})[0];
  };
  EXPECT_NEAR(at(Activation::kSilu, 1), 0.731059f, 1e-6);
  EXPECT_NEAR(at(Activation::kGeluTanh, 1), 0.841192f, 1e-6);
  EXPECT_NEAR(at(Activation::kGelu, 1), 0.841345f, 1e-6);
  EXPECT_EQ(at(Activation::kRelu, 1), 1.0f);
  EXPECT_EQ(at(Activation::kRelu2, 2), 4.0f);
  EXPECT_EQ(at(Activation::kSilu, 0), 0.0f);
  EXPECT_EQ(at(Activation::kSilu, 88), 88.0f);
  EXPECT_EQ(at(Activation::kSilu, 1000), 1000.0f);
  EXPECT_NEAR(at(Activation::kSilu, -1.27846f), -0.278465f, 1e-6);  // its minimum
  EXPECT_LT(at(Activation::kSilu, -89), 0.0f);                      // still there: no flush
  EXPECT_LT(at(Activation::kSilu, -104), 0.0f);
}

// The bound is of use only if the measurement sees errors: plant one in each kind of value.
TEST(Activations, UlpErrorSeesErrors) {
  EXPECT_EQ(UlpError(1.0f, 1.0L), 0.0);
  EXPECT_NEAR(UlpError(1.0f + 0x1p-23f, 1.0L), 1.0, 1e-9);
  EXPECT_NEAR(UlpError(-1.0f, 1.0L), 0x1p24, 1);
  EXPECT_NEAR(UlpError(std::numeric_limits<float>::denorm_min(), 0.0L), 1.0, 1e-9);
  EXPECT_GT(UlpError(kInfinity, 1.0L), 1e6);
  EXPECT_GT(UlpError(1.0f, 1e39L), 1e6);
  EXPECT_FALSE(UlpError(std::numeric_limits<float>::quiet_NaN(), 1.0L) <= 1e6);
}

}  // namespace
}  // namespace sluice
