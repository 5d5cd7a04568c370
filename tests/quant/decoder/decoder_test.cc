#include "quant/decoder/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "quant/decoder/losses.h"
#include "tests/quant/decoder/run_decoder.h"
#include "tests/support/correlated.h"
#include "tests/support/safetensors_bytes.h"

namespace sluice::test {
namespace {

using ::testing::HasSubstr;

// What a window holds before and after it changes nothing, and neither do groups and threads.
TEST(Decoder, WindowsKnowNothingOfEachOther) {
  const TempDir dir;
  const Decoder decoder = OpenDecoder("gemma3", dir).value();
  Tokens tokens{.source = "", .ids = std::vector<int32_t>(3000), .windows = {}};
  for (size_t i = 0; i < tokens.ids.size(); ++i) tokens.ids[i] = static_cast<int32_t>(i * i % 61);
  tokens.windows = {700, 1, 299, 1500, 500};
  const ThreadPool pool = ThreadPool::Create(3).value();
  const std::vector<float> all = RunLayers(decoder, tokens, &pool);
  auto ids = tokens.ids.begin();
  auto row = all.begin();
  for (const size_t length : tokens.windows) {
    const auto end = ids + static_cast<ptrdiff_t>(length);
    const Tokens one{.source = "", .ids = {ids, end}, .windows = {length}};
    const std::vector<float> alone = RunLayers(decoder, one, nullptr);
    const auto last = row + static_cast<ptrdiff_t>(alone.size());
    EXPECT_LT(RelativeError(std::vector<float>(row, last), alone), 1e-6) << length;
    ids = end;
    row = last;
  }
}

// The bundled model, whose loss PyTorch has measured: every byte but the first is predicted, from
// its own window's bytes.
TEST(Decoder, BundledModelHasPyTorchsPerplexity) {
  const std::string folder = std::string(SLUICE_TEST_DATA) + "/tiny-llama";
  const Decoder decoder = Decoder::Open(folder, std::nullopt).value();
  const auto text = ReadText(folder + "/heldout.txt", 256, decoder.vocabulary());
  ASSERT_TRUE(text) << text.error().message;
  // The script's windows reach one byte further, into the next one's first byte.
  Tokens tokens{.source = "", .ids = {}, .windows = {}};
  for (size_t first = 0; first + 1 < text->ids.size(); first += 256) {
    const size_t length = std::min<size_t>(257, text->ids.size() - first);
    tokens.ids.insert(tokens.ids.end(), text->ids.begin() + static_cast<ptrdiff_t>(first),
                      text->ids.begin() + static_cast<ptrdiff_t>(first + length));
    tokens.windows.push_back(length);
  }
  const std::vector<float> stream = RunLayers(decoder, tokens, nullptr);
  const MatrixView<const float> view(stream.data(), tokens.ids.size(), decoder.d_model());
  const auto losses =
      MeasureLosses(decoder, tokens.ids, tokens.windows, std::vector{view}, nullptr);
  ASSERT_TRUE(losses);
  double nats = 0;
  for (const TokenLoss& loss : losses->front()) nats += loss.nll;
  ASSERT_EQ(losses->front().size(), text->ids.size() - 1);
  const auto count = static_cast<double>(losses->front().size());
  const auto figures = nlohmann::json::parse(std::ifstream(folder + "/figures.json"));
  const double bits = figures["heldout_bits_per_byte"];
  EXPECT_NEAR(nats / std::log(2) / count, bits, 1e-5);
  EXPECT_NEAR(std::exp(nats / count), std::exp2(bits), 5e-5);  // 3.188…: 4 digits
}

// What is asked of a block's output arrives in the stream: as it is, or, where a norm follows, up
// to one factor for the row, and less of it in channels with small weights.
TEST(Decoder, MovedOutputsMoveTheStream) {
  for (const std::string_view name : {"llama", "gemma", "gemma2", "gemma3"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const Decoder decoder = OpenDecoder(name, dir).value();
    const DecoderLayer layer = decoder.Layer(1).value();
    EXPECT_EQ(layer.norms_output(), name == "gemma2" || name == "gemma3");
    Random random;
    const size_t d = decoder.d_model();
    FloatMatrix y = NormalMatrix(random, 5, d, 3), to = NormalMatrix(random, 5, d),
                from = NormalMatrix(random, 5, d);
    const auto added = [&](FloatMatrix output) {
      FloatMatrix stream(5, d);
      layer.AddBlockOutput({output.values.data(), 5, d}, {stream.values.data(), 5, d}, nullptr);
      return stream;
    };
    const FloatMatrix before = added(y);
    FloatMatrix moved = y;
    layer.MoveOutput(to.view(), from.view(), 0.25f, 1e3f, {moved.values.data(), 5, d}, nullptr);
    const FloatMatrix after = added(moved);
    // The norm's weights, as they show.
    const auto weight = [&](size_t c) {
      return layer.norms_output() ? before(0, c) / (y(0, c) * layer.OutputGain(y.view().row(0)))
                                  : 1;
    };
    float typical = 0;
    for (size_t c = 0; c < d; ++c) typical += weight(c) * weight(c) / static_cast<float>(d);
    for (size_t r = 0; r < 5; ++r) {
      const float factor =
          layer.OutputGain(moved.view().row(r)) / layer.OutputGain(y.view().row(r));
      EXPECT_EQ(factor == 1, !layer.norms_output());
      for (size_t c = 0; c < d; ++c) {
        const float part = std::min(1.0f, weight(c) * weight(c) / typical);
        const float wanted = before(r, c) + 0.25f * part * (to(r, c) - from(r, c));
        EXPECT_NEAR(after(r, c), wanted * factor, 1e-5 * (1 + std::fabs(wanted)));
      }
    }
  }
}

// A token whose error is far beyond its output is asked for no more than the limit, in the same
// direction; the others are asked for all of theirs.
TEST(Decoder, OutputsMoveNoFurtherThanAllowed) {
  for (const std::string_view name : {"llama", "gemma2"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const Decoder decoder = OpenDecoder(name, dir).value();
    const DecoderLayer layer = decoder.Layer(1).value();
    Random random;
    const size_t d = decoder.d_model();
    const FloatMatrix y = NormalMatrix(random, 3, d), from = NormalMatrix(random, 3, d);
    FloatMatrix to = NormalMatrix(random, 3, d);
    for (float& v : std::span(to.values).subspan(d, d)) v *= 1e4f;
    const auto change = [&](float most) {
      FloatMatrix moved = y;
      layer.MoveOutput(to.view(), from.view(), 1e-3f, most, {moved.values.data(), 3, d}, nullptr);
      std::ranges::transform(moved.values, y.values, moved.values.begin(), std::minus());
      return moved;
    };
    const FloatMatrix all = change(1e6f), limited = change(0.5f);
    const auto length = [&](const FloatMatrix& m, size_t r) {
      const auto row = m.view().row(r);
      return std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
    };
    EXPECT_NEAR(length(limited, 1) / length(y, 1), 0.5, 1e-5);
    const double fraction = length(limited, 1) / length(all, 1);
    EXPECT_LT(fraction, 0.2);
    for (size_t c = 0; c < d; ++c) {
      EXPECT_EQ(limited(0, c), all(0, c));
      EXPECT_NEAR(limited(1, c), fraction * all(1, c), 1e-5);
      EXPECT_EQ(limited(2, c), all(2, c));
    }
  }
}

// A fixture without one of its tensors, or with another.
class DamagedDecoder : public ::testing::Test {
 protected:
  std::string ErrorOf(std::string_view fixture, std::string_view dropped,
                      std::string_view added = {}, std::vector<uint64_t> shape = {}) {
    SafetensorsBytes file;
    const SafetensorsFile source = OpenFixture(fixture);
    for (const SafetensorsEntry& entry : source.entries()) {
      if (entry.name == dropped) continue;
      file.Tensor(entry.name, entry.dtype, entry.shape,
                  {reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()});
    }
    if (!added.empty()) {
      const size_t n = std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies());
      file.F32(added, shape, std::vector<float>(n));
    }
    WriteBytes(dir_.File("model.safetensors"), file.Build());
    WriteBytes(dir_.File("config.json"), source.metadata().at("config"));
    const auto decoder = Decoder::Open(dir_.path(), std::nullopt);
    return decoder ? "" : decoder.error().message;
  }

  TempDir dir_;
};

TEST_F(DamagedDecoder, NamesWhatIsMissing) {
  EXPECT_EQ(ErrorOf("llama", ""), "");
  for (const auto* name : {"model.layers.1.self_attn.q_proj.weight", "model.norm.weight",
                           "model.layers.0.input_layernorm.weight", "lm_head.weight"}) {
    EXPECT_THAT(ErrorOf("llama", name), HasSubstr(name));
  }
  EXPECT_THAT(ErrorOf("llama", "model.embed_tokens.weight"), HasSubstr("no embedding"));
  EXPECT_THAT(ErrorOf("qwen2", "model.layers.0.self_attn.k_proj.bias"), HasSubstr("k_proj.bias"));
  EXPECT_THAT(ErrorOf("qwen3", "model.layers.0.self_attn.k_norm.weight"), HasSubstr("k_norm"));
}

TEST_F(DamagedDecoder, NamesWhatNobodyUses) {
  EXPECT_THAT(ErrorOf("llama", "", "model.layers.0.self_attn.q_proj.bias", {48}),
              HasSubstr("by " + dir_.File("config.json") + " the attention has no such bias"));
  EXPECT_THAT(ErrorOf("llama", "", "model.layers.0.self_attn.q_norm.weight", {8}),
              HasSubstr("models of the family llama have none"));
}

TEST_F(DamagedDecoder, NamesWrongShapes) {
  const std::string name = "model.layers.1.self_attn.v_proj.weight";
  EXPECT_THAT(ErrorOf("llama", name, name, {24, 16}), HasSubstr("[24, 16], expected [16, 24]"));
  EXPECT_THAT(ErrorOf("llama", "model.embed_tokens.weight", "model.embed_tokens.weight", {61, 23}),
              HasSubstr("[61, 23], expected [vocabulary, 24]"));
}

}  // namespace
}  // namespace sluice::test
