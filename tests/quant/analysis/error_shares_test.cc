// Whose fault an error is: all shares together are the whole of it.
#include "quant/analysis/error_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <vector>

#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

constexpr Eigen::Index kTokens = 5;
constexpr size_t kD = 7;
constexpr size_t kM = 130;  // two tasks and a bit

// A down projection before and after, and the error that it makes.
struct Sides {
  explicit Sides(test::Random& random)
      : weights(test::RandomVector(random, kD * kM)),
        weights_hat(test::RandomVector(random, kD * kM)),
        hidden(Values(random)),
        hidden_hat(Values(random)) {}

  static DoubleMatrix Values(test::Random& random) {
    const std::vector<float> values = test::RandomVector(random, kTokens * kM);
    return ToDouble({values.data(), kTokens, kM});
  }
  MatrixView<const float> v() const { return {weights.data(), kD, kM}; }
  MatrixView<const float> v_hat() const { return {weights_hat.data(), kD, kM}; }
  DoubleMatrix Error() const {
    return hidden_hat * ToDouble(v_hat()).transpose() - hidden * ToDouble(v()).transpose();
  }
  std::vector<NeuronShare> Worst(size_t count) const {
    return WorstNeurons({hidden, v()}, {hidden_hat, v_hat()}, Error(), count, nullptr);
  }

  std::vector<float> weights;
  std::vector<float> weights_hat;
  DoubleMatrix hidden;
  DoubleMatrix hidden_hat;
};

TEST(WorstNeurons, SharesAddUpToOne) {
  test::Random random;
  const Sides sides(random);
  const std::vector<NeuronShare> all = sides.Worst(kM);
  ASSERT_EQ(all.size(), kM);
  double sum = 0;
  for (size_t i = 0; i < kM; ++i) {
    sum += all[i].share;
    EXPECT_NEAR(all[i].share, all[i].key + all[i].value, 1e-15);
    if (i > 0) {
      EXPECT_LE(all[i].share, all[i - 1].share);
    }
  }
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(WorstNeurons, KeyAndValueAreToldApart) {
  test::Random random;
  Sides sides(random);
  sides.weights_hat = sides.weights;
  sides.hidden_hat = sides.hidden;
  EXPECT_TRUE(sides.Worst(3).empty());  // no error
  sides.hidden_hat(2, 129) += 1;
  std::vector<NeuronShare> worst = sides.Worst(3);
  ASSERT_EQ(worst.size(), 3u);
  EXPECT_EQ(worst[0].neuron, 129u);
  EXPECT_EQ(worst[0].token, 2u);
  EXPECT_NEAR(worst[0].key, 1, 1e-12);
  EXPECT_EQ(worst[0].value, 0);
  EXPECT_EQ(worst[1].share, 0);
  sides.hidden_hat = sides.hidden;
  sides.weights_hat[3 * kM + 64] += 1;
  worst = sides.Worst(1);
  EXPECT_EQ(worst[0].neuron, 64u);
  EXPECT_EQ(worst[0].key, 0);
  EXPECT_NEAR(worst[0].value, 1, 1e-12);
}

TEST(WorstTokens, AreThoseFarthestFromTheirOwnReference) {
  DoubleMatrix reference(3, 2);
  reference << 10, 0, 1, 0, 0, 4;
  const std::vector<float> actual = {12, 0, 1.5f, 0, 0, 4};  // 20 %, 50 %, none
  const auto worst = WorstTokens(reference, {actual.data(), 3, 2}, 2);
  ASSERT_EQ(worst.size(), 2u);
  EXPECT_EQ(worst[0].token, 1u);
  EXPECT_DOUBLE_EQ(worst[0].relative_l2, 0.5);
  EXPECT_DOUBLE_EQ(worst[0].share, 0.25 / 4.25);
  EXPECT_EQ(worst[1].token, 0u);
  EXPECT_DOUBLE_EQ(worst[1].share, 4 / 4.25);
  const std::vector<float> broken = {12, 0, 1.5f, 0, 0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(WorstTokens(reference, {broken.data(), 3, 2}, 2)[0].token, 2u);
}

}  // namespace
}  // namespace sluice
