#include "quant/quantizer/error_factor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "quant/quantizer/loss_moments.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

// H = diagonal, so that columns do not depend on one another.
LossMoments Independent(const std::vector<float>& diagonal, std::vector<float> shift) {
  LossMoments moments = LossMoments::Zero(diagonal.size());
  for (size_t c = 0; c < moments.n; ++c) moments.second[c * moments.n + c] = diagonal[c];
  moments.tokens = 1;
  moments.shift = std::move(shift);
  return moments;
}

class ShiftedWeightsTest : public ::testing::Test {
 protected:
  std::vector<float> Shifted(const std::vector<float>& weights, const LossMoments& moments,
                             size_t block) {
    const ErrorFactor factor = Factorize(moments, OrderColumns(moments, block)).value();
    const size_t n = moments.n;
    return ShiftedWeights({weights.data(), weights.size() / n, n}, moments, factor, block, nullptr);
  }
};

TEST_F(ShiftedWeightsTest, MinimiseTheLossWithDamping) {
  const std::vector<float> diagonal = {4, 1, 2, 1};  // the mean is 2, the damping 0.02
  const std::vector<float> w = {1, 1, 1, 1, -1, 1, -1, 1};
  const LossMoments moments = Independent(diagonal, {0.4f, 0, 1, -0.5f, 0, 0.2f, 0, 0});
  const std::vector<float> v = Shifted(w, moments, 4);
  for (size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(v[i], w[i] - moments.shift[i] / (diagonal[i % 4] + 0.02f), 1e-5) << i;
  }
}

TEST_F(ShiftedWeightsTest, StayWithinTwiceTheLargestWeightOfTheirBlock) {
  // Two blocks of two columns, the second of which few tokens see, and two rows.
  const std::vector<float> w = {0.5f, -1, 0.25f, 0, 1, 1, 0, 0};
  const LossMoments moments =
      Independent({1, 1, 0.01f, 0.01f}, {0.1f, 0.1f, -5, 5, -100, 0, 3, -3});
  const std::vector<float> v = Shifted(w, moments, 2);
  EXPECT_NEAR(v[0], 0.5 - 0.1 / 1.00505, 1e-5);
  EXPECT_NEAR(v[1], -1 - 0.1 / 1.00505, 1e-5);
  EXPECT_THAT(std::vector<float>(v.begin() + 2, v.end()), ElementsAre(0.5f, -0.5f, 2, 1, 0, 0));
}

TEST_F(ShiftedWeightsTest, AreTheWeightsWhereTargetsAreTheirs) {
  const std::vector<float> w = {3, -0.0f, 1e-30f, 1e30f};
  EXPECT_EQ(Shifted(w, Independent({1, 2, 3, 4}, {}), 2), w);
}

}  // namespace
}  // namespace sluice
