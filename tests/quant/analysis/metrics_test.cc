// The metrics by their formulas, and the errors that a comparator must not be blind to.
#include "quant/analysis/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/seed.h"

namespace sluice {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Vector = std::vector<double>;

ErrorSums SumsOf(const Vector& reference, const Vector& actual) {
  ErrorSums sums;
  for (size_t i = 0; i < reference.size(); ++i) sums.Add(reference[i], actual[i]);
  return sums;
}

OutputReport Measure(const Vector& reference, const std::vector<float>& actual, size_t tokens) {
  const size_t cols = reference.size() / tokens;
  return MeasureOutput({reference.data(), tokens, cols}, {actual.data(), tokens, cols});
}

std::vector<float> Narrow(const Vector& v) { return {v.begin(), v.end()}; }

Vector Normal(test::Random& random, size_t n) {
  Vector values(n);
  for (double& v : values) v = random.Normal();
  return values;
}

TEST(ErrorSums, FollowTheFormulas) {
  // y = (3, 4), ŷ = (3, 5): ‖e‖ = 1, ‖y‖ = 5, y·ŷ = 29, ‖ŷ‖ = √34.
  const ErrorSums sums = SumsOf({3, 4}, {3, 5});
  EXPECT_DOUBLE_EQ(sums.relative_l2(), 0.2);
  EXPECT_DOUBLE_EQ(sums.sqnr_db(), 20 * std::log10(5.0));
  EXPECT_DOUBLE_EQ(sums.cosine(), 29 / (5 * std::sqrt(34.0)));
  EXPECT_EQ(sums.max_abs_error(), 1);
}

TEST(ErrorSums, AddLikeTheirVectors) {
  ErrorSums sums = SumsOf({1, 2}, {1, 2.5});
  sums.Add(SumsOf({3, -4}, {2, -4}));
  const ErrorSums whole = SumsOf({1, 2, 3, -4}, {1, 2.5, 2, -4});
  EXPECT_EQ(sums.relative_l2(), whole.relative_l2());
  EXPECT_EQ(sums.cosine(), whole.cosine());
  EXPECT_EQ(sums.max_abs_error(), 1);
}

TEST(ErrorSums, AnExactResultHasNoError) {
  test::Random random;
  const Vector y = Normal(random, 100);
  const ErrorSums sums = SumsOf(y, y);
  EXPECT_EQ(sums.relative_l2(), 0);
  EXPECT_EQ(sums.sqnr_db(), kInf);
  EXPECT_NEAR(sums.cosine(), 1, 1e-15);
  EXPECT_LE(sums.cosine(), 1);
  EXPECT_EQ(sums.max_abs_error(), 0);
}

TEST(ErrorSums, DivideByNoZero) {
  const ErrorSums both = SumsOf({0, 0}, {0, -0.0});
  EXPECT_EQ(both.relative_l2(), 0);
  EXPECT_EQ(both.sqnr_db(), kInf);
  EXPECT_EQ(both.cosine(), 1);
  const ErrorSums reference = SumsOf({0, 0}, {0, 1e-30});
  EXPECT_EQ(reference.relative_l2(), kInf);
  EXPECT_EQ(reference.sqnr_db(), -kInf);
  EXPECT_EQ(reference.cosine(), 0);
  const ErrorSums actual = SumsOf({0, 2}, {0, 0});
  EXPECT_EQ(actual.relative_l2(), 1);
  EXPECT_EQ(actual.sqnr_db(), 0);
  EXPECT_FALSE(std::signbit(actual.sqnr_db()));  // or reports would say "-0"
  EXPECT_EQ(actual.cosine(), 0);
  EXPECT_EQ(ErrorSums().relative_l2(), 0);
}

TEST(ErrorSums, SmallAndLargeVectorsAreMeasuredAlike) {
  for (const double unit : {1e-140, 1e-38, 1.0, 1e38, 1e140}) {
    EXPECT_NEAR(SumsOf({3 * unit, 4 * unit}, {3 * unit, 5 * unit}).relative_l2(), 0.2, 1e-12);
  }
}

// The planted errors. Each must be seen, however many right values surround it.
TEST(PlantedErrors, WrongSign) {
  test::Random random;
  const Vector y = Normal(random, 1000);
  Vector wrong = y;
  for (double& v : wrong) v = -v;
  const ErrorSums sums = SumsOf(y, wrong);
  EXPECT_DOUBLE_EQ(sums.relative_l2(), 2);
  EXPECT_NEAR(sums.cosine(), -1, 1e-12);
}

TEST(PlantedErrors, NotANumber) {
  test::Random random;
  for (const double bad : {std::nan(""), -std::nan("")}) {
    for (const size_t where : {0, 500, 999}) {
      const Vector y = Normal(random, 1000);
      Vector wrong = y;
      wrong[where] = bad;
      const ErrorSums sums = SumsOf(y, wrong);
      EXPECT_TRUE(std::isnan(sums.relative_l2()));
      EXPECT_TRUE(std::isnan(sums.sqnr_db()));
      EXPECT_TRUE(std::isnan(sums.cosine()));
      EXPECT_TRUE(std::isnan(sums.max_abs_error()));
      EXPECT_TRUE(std::isnan(SumsOf(wrong, y).relative_l2()));
    }
  }
  EXPECT_FALSE(std::isfinite(SumsOf({1, 2}, {1, kInf}).relative_l2()));
  // Nor does a reference of zeros hide it.
  for (const double bad : {std::nan(""), kInf}) {
    EXPECT_TRUE(std::isnan(SumsOf({0, 0}, {0, bad}).cosine())) << bad;
    EXPECT_TRUE(std::isnan(SumsOf({0, bad}, {0, 0}).cosine())) << bad;
  }
}

TEST(PlantedErrors, AThousandTimesTooLarge) {
  test::Random random;
  const Vector y = Normal(random, 1000);
  Vector wrong = y;
  for (double& v : wrong) v *= 1000;
  const ErrorSums sums = SumsOf(y, wrong);
  EXPECT_NEAR(sums.relative_l2(), 999, 1e-9);
  EXPECT_NEAR(sums.cosine(), 1, 1e-12);  // blind to scale, which is why it is not alone
}

TEST(PlantedErrors, OneBadElement) {
  const Vector y(10000, 1.0);
  Vector wrong = y;
  wrong[9999] = 1.5;
  const ErrorSums sums = SumsOf(y, wrong);
  EXPECT_DOUBLE_EQ(sums.relative_l2(), 0.005);
  EXPECT_EQ(sums.max_abs_error(), 0.5);
}

TEST(MaxOrNan, KeepsNan) {
  EXPECT_EQ(MaxOrNan(1, 2), 2);
  EXPECT_EQ(MaxOrNan(2, 1), 2);
  EXPECT_TRUE(std::isnan(MaxOrNan(std::nan(""), 1)));
  EXPECT_TRUE(std::isnan(MaxOrNan(1, std::nan(""))));
}

TEST(Compare, TakesWeights) {
  const std::vector<float> weights = {3, 4};
  const std::vector<float> stored = {3, 5};
  EXPECT_DOUBLE_EQ(Compare(weights, stored).relative_l2(), 0.2);
}

TEST(MeasureOutput, TakesAllTokensTogetherAndEachAlone) {
  // Errors of 0, 1 and 0.5 against norms of 1, 5 and 10.
  const Vector y = {1, 0, 3, 4, 6, 8};
  const OutputReport report = Measure(y, {1, 0, 3, 5, 6, 7.5f}, 3);
  EXPECT_DOUBLE_EQ(report.relative_l2, std::sqrt(1.25 / 126));
  EXPECT_DOUBLE_EQ(report.sqnr_db, 10 * std::log10(126 / 1.25));
  const double second = 29 / (5 * std::sqrt(34.0));
  const double third = 96 / (10 * std::sqrt(36 + 56.25));
  EXPECT_DOUBLE_EQ(report.cosine_mean, (1 + second + third) / 3);
  EXPECT_DOUBLE_EQ(report.cosine_min, second);
  EXPECT_EQ(report.max_abs_error, 1);
  EXPECT_EQ(report.worst_token, 1u);
}

TEST(MeasureOutput, ReadsNothingBetweenRows) {
  const Vector y = {3, std::nan(""), 4, std::nan("")};
  const std::vector<float> actual = {3, NAN, NAN, 5, NAN, NAN};
  EXPECT_DOUBLE_EQ(MeasureOutput({y.data(), 2, 1, 2}, {actual.data(), 2, 1, 3}).relative_l2, 0.2);
}

TEST(MeasureOutput, TheWorstTokenIsTheOneThatIsNotANumber) {
  test::Random random;
  const Vector y = Normal(random, 40);
  std::vector<float> actual = Narrow(y);
  actual[3 * 4] *= 1000;
  EXPECT_EQ(Measure(y, actual, 10).worst_token, 3u);
  actual[5 * 4 + 1] = NAN;
  actual[7 * 4] = NAN;
  const OutputReport report = Measure(y, actual, 10);
  EXPECT_EQ(report.worst_token, 5u);
  EXPECT_TRUE(std::isnan(report.relative_l2));
  EXPECT_TRUE(std::isnan(report.cosine_min));
  EXPECT_TRUE(std::isnan(report.cosine_mean));
}

TEST(MeasureOutput, AZeroTokenThatShouldBeZeroIsRight) {
  const OutputReport report = Measure({0, 0, 1, 1}, {0, 0, 1, 1}, 2);
  EXPECT_EQ(report.relative_l2, 0);
  EXPECT_NEAR(report.cosine_min, 1, 1e-15);
  EXPECT_EQ(report.worst_token, 0u);
  EXPECT_EQ(Measure({1, 1, 0, 0}, {1, 1.5f, 0, 1e-9f}, 2).worst_token, 1u);
}

TEST(RelativeL2, ComparesMatrices) {
  const Vector y = {3, 0, 0, 4};
  const Vector other = {3, 0, 1, 4};
  EXPECT_DOUBLE_EQ(RelativeL2({y.data(), 2, 2}, {other.data(), 2, 2}), 0.2);
}

}  // namespace
}  // namespace sluice
