// Every family against Hugging Face transformers, on models that make_fixtures.py drew at random.
#include <gtest/gtest.h>

#include <format>
#include <string>
#include <vector>

#include "quant/decoder/decoder.h"
#include "tests/quant/decoder/gguf_fixture.h"
#include "tests/quant/decoder/run_decoder.h"

namespace sluice::test {
namespace {

// Both sides compute in f32, 2 or 3 layers deep.
constexpr double kTolerance = 1e-5;

class Fixtures : public ::testing::TestWithParam<std::string_view> {
 protected:
  void ExpectSameLogits(const Decoder& decoder) const {
    const SafetensorsFile fixture = OpenFixture(GetParam());
    const std::vector<uint64_t>& shape = fixture.Find("tokens")->shape;
    const auto tokens = ReadTokens(FixturePath(GetParam()), shape[1], decoder.vocabulary());
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_EQ(tokens->windows, std::vector<size_t>(shape[0], shape[1]));
    const std::vector<double> logits = Logits(decoder, RunLayers(decoder, *tokens, nullptr));
    EXPECT_LT(RelativeError(logits, ValuesOf<float>(*fixture.Find("logits"))), kTolerance);
  }

  TempDir dir_;
};

TEST_P(Fixtures, LogitsAreThoseOfTransformers) {
  const auto decoder = OpenDecoder(GetParam(), dir_);
  ASSERT_TRUE(decoder) << decoder.error().message;
  ExpectSameLogits(*decoder);
}

// The same weights under GGUF's names and in its order.
TEST_P(Fixtures, LogitsFromGgufAreTheSame) {
  const std::string path = dir_.File("model.gguf");
  // Windows of Mistral and Qwen are beyond GGUF.
  if (GetParam().ends_with("sliding")) return;
  WriteGgufFixture(GetParam(), path);
  const auto decoder = Decoder::Open(path, std::nullopt);
  ASSERT_TRUE(decoder) << decoder.error().message;
  ExpectSameLogits(*decoder);
}

INSTANTIATE_TEST_SUITE_P(All, Fixtures, ::testing::ValuesIn(kFixtures),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace sluice::test
