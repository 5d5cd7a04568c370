// The bundled model, quantized on a part of its text: what is asked of each block beside its own
// output lowers the error of the stream.
#include "quant/quantizer/fit_stream.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/emulated.h"

namespace sluice {
namespace {

constexpr WeightFormat kInt4Block = {WeightType::kInt4, 32};
constexpr size_t kTokens = test::kEmulated ? 256 : 768;

// ‖exact − rounded‖ / ‖exact‖ after the last layer, on the tokens that were fitted.
double StreamError(const StreamOptions& options) {
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/tiny-llama";
  const Decoder decoder = Decoder::Open(folder, std::nullopt).value();
  const Tokens text = ReadText(folder + "/heldout.txt", 256, decoder.vocabulary()).value();
  const Tokens tokens{.source = "",
                      .ids = {text.ids.begin(), text.ids.begin() + kTokens},
                      .windows = std::vector<size_t>(kTokens / 256, 256)};
  StreamFitter fitter = StreamFitter::Create(decoder, tokens, options, nullptr).value();
  for (size_t i = 0; i < decoder.layers(); ++i) {
    const FfnWeights weights = decoder.checkpoint().Load(i).value();
    EXPECT_TRUE(fitter.Quantize(weights, {{kInt4Block, kInt4Block, kInt4Block}},
                                {ActivationFormat::kBlock, ActivationFormat::kBlock}));
  }
  double error = 0, norm = 0;
  const Streams& streams = fitter.streams();
  for (size_t i = 0; i < streams.exact.size(); ++i) {
    const double difference = static_cast<double>(streams.exact[i]) - streams.rounded[i];
    error += difference * difference;
    norm += static_cast<double>(streams.exact[i]) * streams.exact[i];
  }
  return std::sqrt(error / norm);
}

TEST(FitStream, RepairLowersTheErrorOfTheStream) {
  const double without = StreamError({.fit = {}, .move = 0, .repair = 0});
  const double repaired = StreamError({.fit = {}, .move = 0, .repair = 0.5f});
  EXPECT_LT(repaired, 0.97 * without);
  EXPECT_GT(without, 0.01);
  if (test::kEmulated) return;
  const double moved = StreamError({.fit = {}, .move = 0.5f, .repair = 0});
  const double both = StreamError({.fit = {}, .move = 0.5f, .repair = 0.5f});
  EXPECT_LT(moved, without);
  EXPECT_LT(both, moved);
}

}  // namespace
}  // namespace sluice
