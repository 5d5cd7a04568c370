#include "quant/decoder/losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/quant/decoder/run_decoder.h"

namespace sluice::test {
namespace {

// Straight from the definitions, on whole rows of logits.
std::vector<double> LogSoftmax(std::span<const double> logits) {
  const double max = std::ranges::max(logits);
  double sum = 0;
  for (const double v : logits) sum += std::exp(v - max);
  std::vector<double> logs;
  for (const double v : logits) logs.push_back(v - max - std::log(sum));
  return logs;
}

TokenLoss Expected(std::span<const double> reference, std::span<const double> mine, size_t target) {
  const std::vector<double> p = LogSoftmax(reference), q = LogSoftmax(mine);
  TokenLoss loss{.nll = -q[target], .kl = 0, .same_top = false};
  for (size_t i = 0; i < p.size(); ++i) loss.kl += std::exp(p[i]) * (p[i] - q[i]);
  loss.same_top =
      std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin();
  return loss;
}

class LossesTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(LossesTest, AreThoseOfTheWholeSoftmax) {
  const TempDir dir;
  const Decoder decoder = OpenDecoder(GetParam(), dir).value();
  const Tokens tokens = ReadTokens(FixturePath(GetParam()), 9, decoder.vocabulary()).value();
  const std::vector<float> exact = RunLayers(decoder, tokens, nullptr);
  std::vector<float> changed = exact;
  for (size_t i = 0; i < changed.size(); ++i) changed[i] *= i % 3 == 0 ? 1.4f : 0.8f;
  const std::vector<double> p = Logits(decoder, exact), q = Logits(decoder, changed);
  const auto view = [&](const std::vector<float>& stream) {
    return MatrixView<const float>(stream.data(), tokens.ids.size(), decoder.d_model());
  };
  size_t slices = 0;
  const auto losses = MeasureLosses(decoder, tokens.ids, tokens.windows,
                                    std::vector{view(exact), view(changed), view(exact)}, nullptr,
                                    [&] { ++slices; });
  ASSERT_TRUE(losses);
  EXPECT_EQ(slices, decoder.vocabulary_slices());
  ASSERT_EQ((*losses)[0].size(), tokens.predictions());
  size_t row = 0, prediction = 0, agreed = 0;
  for (const size_t length : tokens.windows) {
    for (size_t i = 0; i + 1 < length; ++i, ++prediction) {
      const auto logits = [&](const std::vector<double>& all) {
        return std::span(all).subspan((row + i) * decoder.vocabulary(), decoder.vocabulary());
      };
      const auto target = static_cast<size_t>(tokens.ids[row + i + 1]);
      const TokenLoss expected = Expected(logits(p), logits(q), target);
      const TokenLoss& actual = (*losses)[1][prediction];
      EXPECT_NEAR(actual.nll, expected.nll, 1e-5);
      EXPECT_NEAR(actual.kl, expected.kl, 1e-5);
      EXPECT_EQ(actual.same_top, expected.same_top);
      agreed += actual.same_top;
      EXPECT_NEAR((*losses)[0][prediction].nll, Expected(logits(p), logits(p), target).nll, 1e-5);
      EXPECT_EQ((*losses)[0][prediction].kl, 0);
      EXPECT_NEAR((*losses)[2][prediction].kl, 0, 1e-6);
      EXPECT_TRUE((*losses)[2][prediction].same_top);
    }
    row += length;
  }
  EXPECT_GT(agreed, 0);
  EXPECT_LT(agreed, tokens.predictions());
}

// With and without a cap of the logits.
INSTANTIATE_TEST_SUITE_P(All, LossesTest, ::testing::Values("llama", "gemma2"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sluice::test
