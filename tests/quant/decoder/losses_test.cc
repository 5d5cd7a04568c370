#include "quant/decoder/losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "tests/quant/decoder/run_decoder.h"
#include "tests/support/safetensors_bytes.h"

namespace sluice::test {
namespace {

// Of a loss, in nats. Gemma 2's soft cap is 30 times a tanh, for which Eigen divides, which NEON of
// 32 bits does by approximation: that tanh was off by up to 8.3e-6 there, by 4e-7 on x86 (trial).
double Tolerance([[maybe_unused]] std::string_view family) {
#if defined(__arm__)
  if (family == "gemma2") return 30 * 8.3e-6;
#endif
  return 1e-5;
}

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
  const auto top = [](const std::vector<double>& logs) {
    return static_cast<size_t>(std::ranges::max_element(logs) - logs.begin());
  };
  TokenLoss loss{.nll = -q[target], .kl = 0, .top = top(q), .same_top = top(p) == top(q)};
  for (size_t i = 0; i < p.size(); ++i) loss.kl += std::exp(p[i]) * (p[i] - q[i]);
  return loss;
}

// Fixture `name` with another vocabulary, of several slices, whose logits grow from one to the
// next.
Decoder LargeVocabulary(std::string_view name, const TempDir& dir) {
  constexpr size_t kVocabulary = 5000;
  const SafetensorsFile fixture = OpenFixture(name);
  SafetensorsBytes file;
  for (const SafetensorsEntry& entry : fixture.entries()) {
    if (!entry.name.contains("embed_tokens") && !entry.name.contains("lm_head")) {
      const auto* data = reinterpret_cast<const char*>(entry.bytes.data());
      file.Tensor(entry.name, entry.dtype, entry.shape, {data, entry.bytes.size()});
      continue;
    }
    std::vector<float> values(kVocabulary * entry.shape[1]);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<double>(i);
      const double growth = 0.1 + 0.4 * at / static_cast<double>(values.size());
      values[i] = static_cast<float>(growth * std::sin(at * at));
    }
    file.F32(entry.name, {kVocabulary, entry.shape[1]}, values);
  }
  WriteBytes(dir.File("config.json"), fixture.metadata().at("config"));
  WriteBytes(dir.File("model.safetensors"), file.Build());
  return Decoder::Open(dir.path(), std::nullopt).value();
}

class LossesTest : public ::testing::TestWithParam<std::tuple<std::string_view, bool>> {
 protected:
  Decoder Open() const {
    const auto& [name, large] = GetParam();
    return large ? LargeVocabulary(name, dir_) : OpenDecoder(name, dir_).value();
  }

 private:
  TempDir dir_;
};

TEST_P(LossesTest, AreThoseOfTheWholeSoftmax) {
  const Decoder decoder = Open();
  const double tolerance = Tolerance(std::get<0>(GetParam()));
  const std::string path = FixturePath(std::get<0>(GetParam()));
  const Tokens tokens = ReadTokens(path, 9, decoder.vocabulary()).value();
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
      EXPECT_NEAR(actual.nll, expected.nll, tolerance);
      EXPECT_NEAR(actual.kl, expected.kl, tolerance);
      EXPECT_EQ(actual.top, expected.top);
      EXPECT_EQ(actual.same_top, expected.same_top);
      agreed += actual.same_top;
      EXPECT_NEAR((*losses)[0][prediction].nll, Expected(logits(p), logits(p), target).nll,
                  tolerance);
      EXPECT_EQ((*losses)[0][prediction].kl, 0);
      EXPECT_NEAR((*losses)[2][prediction].kl, 0, 1e-6);
      EXPECT_TRUE((*losses)[2][prediction].same_top);
    }
    row += length;
  }
  EXPECT_GT(agreed, 0);
  EXPECT_LT(agreed, tokens.predictions());
}

// With and without a cap of the logits, in one slice and in three.
INSTANTIATE_TEST_SUITE_P(
    All, LossesTest, ::testing::Combine(::testing::Values("llama", "gemma2"), ::testing::Bool()),
    [](const auto& test) {
      return std::string(std::get<0>(test.param)) + (std::get<1>(test.param) ? "_large" : "");
    });

}  // namespace
}  // namespace sluice::test
