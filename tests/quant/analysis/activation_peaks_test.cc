// Activations and weights that stand out, and those that do not.
#include "quant/analysis/activation_peaks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "quant/analysis/histogram.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using ::testing::IsEmpty;

DoubleMatrix Normal(test::Random& random, size_t rows, size_t cols) {
  const std::vector<float> values = test::RandomVector(random, rows * cols);
  return ToDouble({values.data(), rows, cols});
}

TEST(FindPeaks, NamesTheLargestOfDifferentChannels) {
  DoubleMatrix x = DoubleMatrix::Constant(9, 40, 0.5);
  x(3, 7) = -2000;
  x(4, 7) = 100;
  x(8, 39) = 600;
  const auto peaks = FindPeaks(ActivationSite::kHidden, x, 2);
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_EQ(peaks[0].token, 3u);
  EXPECT_EQ(peaks[0].channel, 7u);
  EXPECT_EQ(peaks[0].value, -2000);
  EXPECT_EQ(peaks[0].over_median, 4000);
  EXPECT_EQ(peaks[0].over_channel, 20);
  EXPECT_TRUE(IsMassive(peaks[0]));
  EXPECT_EQ(peaks[1].channel, 39u);
  EXPECT_EQ(peaks[1].over_channel, 1200);
  x(0, 0) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(FindPeaks(ActivationSite::kHidden, x, 2), IsEmpty());
  EXPECT_THAT(FindPeaks(ActivationSite::kInput, DoubleMatrix::Zero(3, 3), 2), IsEmpty());
}

TEST(FindSpikes, OneTokenFarBeyondItsChannel) {
  test::Random random;
  DoubleMatrix x = Normal(random, 20, 33);
  EXPECT_THAT(FindSpikes(ActivationSite::kInput, x, 3), IsEmpty());
  x(11, 30) = 1000;
  const auto spikes = FindSpikes(ActivationSite::kInput, x, 3);
  ASSERT_EQ(spikes.size(), 1u);
  EXPECT_EQ(spikes[0].token, 11u);
  EXPECT_EQ(spikes[0].channel, 30u);
  // A channel that is large for several tokens is the model's own.
  x(3, 30) = -900;
  EXPECT_THAT(FindSpikes(ActivationSite::kInput, x, 3), IsEmpty());
  // Of a few tokens nobody can tell.
  EXPECT_THAT(FindSpikes(ActivationSite::kInput, x.topRows(7), 3), IsEmpty());
}

TEST(FindSuperWeight, IsTheOneThatMakesTheMassiveOutput) {
  test::Random random;
  DoubleMatrix h = Normal(random, 12, 50);
  std::vector<float> down = test::RandomVector(random, 16 * 50, 0.1f);
  std::vector<float> stored = down;
  const MatrixView<const float> weights(down.data(), 16, 50);
  const auto find = [&] {
    const DoubleMatrix y = h * ToDouble(weights).transpose();
    return FindSuperWeight(h, y, weights, {stored.data(), 16, 50});
  };
  EXPECT_FALSE(find());
  h(5, 41) = 5000;
  down[9 * 50 + 41] = 2;
  stored[9 * 50 + 41] = 1.5;
  const auto found = find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->row, 9u);
  EXPECT_EQ(found->column, 41u);
  EXPECT_EQ(found->token, 5u);
  EXPECT_EQ(found->trained, 2);
  EXPECT_EQ(found->stored, 1.5);
  EXPECT_NEAR(found->share, 1, 0.01);
}

TEST(CountWeights, HasEveryWeightInItsBin) {
  const std::vector<float> before = {-1, 1, -1, 1, 0, 0, 0, 0};
  const std::vector<float> after = {-1, 1, -1, 100, 0, 0, 0, 0};
  const WeightHistogram histogram = CountWeights({before.data(), 2, 4}, after);
  EXPECT_NEAR(histogram.limit, 4 * std::sqrt(0.5), 1e-15);
  EXPECT_EQ(histogram.before[kHistogramBins / 2], 4u);
  EXPECT_EQ(histogram.after[kHistogramBins / 2], 4u);
  EXPECT_EQ(histogram.after[kHistogramBins - 1], 1u);  // far beyond
  EXPECT_EQ(histogram.before[kHistogramBins - 1], 0u);
  const std::vector<float> zeros(8);
  EXPECT_EQ(CountWeights({zeros.data(), 2, 4}, zeros).before[kHistogramBins / 2], 8u);
}

}  // namespace
}  // namespace sluice
