#include "quant/decoder/decoder_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "tests/quant/decoder/gguf_fixture.h"
#include "tests/quant/decoder/run_decoder.h"
#include "tests/support/gguf_writer.h"

namespace sluice::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class DecoderConfigTest : public ::testing::Test {
 protected:
  // The configuration of a fixture after `change`.
  template <class Change>
  Expected<DecoderConfig> Read(std::string_view fixture, const Change& change) {
    json config = json::parse(OpenFixture(fixture).metadata().at("config"));
    change(config);
    WriteBytes(dir_.File("config.json"), config.dump());
    const auto checkpoint = Checkpoint::Open(FixturePath(fixture), dir_.File("config.json"));
    if (!checkpoint) return std::unexpected(checkpoint.error());
    return ReadDecoderConfig(*checkpoint);
  }

  template <class Change>
  std::string ErrorOf(std::string_view fixture, const Change& change) {
    const auto config = Read(fixture, change);
    return config ? "" : config.error().message;
  }

  TempDir dir_;
};

void Unchanged(json&) {}

std::vector<size_t> Windows(const DecoderConfig& config) {
  std::vector<size_t> windows;
  for (const DecoderLayerConfig& layer : config.layers) windows.push_back(layer.window);
  return windows;
}

// transformers before version 5 wrote the rotation in other keys.
TEST_F(DecoderConfigTest, OlderKeysMeanTheSame) {
  for (const std::string_view fixture : {"llama", "llama3_scaled", "llama_linear", "gemma3"}) {
    const auto newer = Read(fixture, Unchanged);
    const auto older = Read(fixture, [](json& c) {
      json all = c["rope_parameters"];
      c.erase("rope_parameters");
      if (all.contains("full_attention")) {
        c["rope_local_base_freq"] = all["sliding_attention"]["rope_theta"];
        all = json(all["full_attention"]);
      }
      c["rope_theta"] = all["rope_theta"];
      all.erase("rope_theta");
      if (all["rope_type"] != "default") c["rope_scaling"] = all;
    });
    ASSERT_TRUE(newer && older) << fixture;
    EXPECT_EQ(RopeFrequencies(newer->rope, 16), RopeFrequencies(older->rope, 16)) << fixture;
    EXPECT_EQ(RopeFrequencies(newer->local_rope, 16), RopeFrequencies(older->local_rope, 16));
  }
}

TEST_F(DecoderConfigTest, DefaultsAreThoseOfTheClass) {
  const auto gemma3 = Read("gemma3", [](json& c) {
    for (const auto* key : {"num_attention_heads", "num_key_value_heads", "head_dim",
                            "rope_parameters", "query_pre_attn_scalar", "layer_types",
                            "tie_word_embeddings", "sliding_window", "rms_norm_eps"}) {
      c.erase(key);
    }
  });
  ASSERT_TRUE(gemma3) << gemma3.error().message;
  EXPECT_EQ(gemma3->heads, 8);
  EXPECT_EQ(gemma3->kv_heads, 4);
  EXPECT_EQ(gemma3->head_dim, 256);
  EXPECT_EQ(gemma3->rope.theta, 1e6);
  EXPECT_EQ(gemma3->local_rope.theta, 1e4);
  EXPECT_EQ(gemma3->attention_scale, 1.0 / 16);
  EXPECT_EQ(gemma3->output_matrix, Presence::kNever);
  EXPECT_EQ(Windows(*gemma3), (std::vector<size_t>{4096, 4096, 4096}));
  EXPECT_EQ(gemma3->norm_eps, 1e-6);
}

TEST_F(DecoderConfigTest, NullIsNotAbsence) {
  const auto windows = [&](std::string_view fixture, const auto& change) {
    return Windows(Read(fixture, change).value());
  };
  using Sizes = std::vector<size_t>;
  const auto erase = [](const char* key) { return [key](json& c) { c.erase(key); }; };
  const auto null = [](const char* key) { return [key](json& c) { c[key] = nullptr; }; };
  EXPECT_EQ(windows("mistral_sliding", Unchanged), (Sizes{7, 7}));
  EXPECT_EQ(windows("mistral_sliding", erase("sliding_window")), (Sizes{4096, 4096}));
  EXPECT_EQ(windows("mistral_sliding", null("sliding_window")), (Sizes{0, 0}));
  EXPECT_EQ(windows("qwen2_sliding", Unchanged), (Sizes{0, 5}));
  EXPECT_EQ(windows("qwen2_sliding", erase("layer_types")), (Sizes{0, 5}));
  EXPECT_EQ(Read("gemma2", erase("final_logit_softcapping"))->logit_cap, 30);
  EXPECT_EQ(Read("gemma2", null("final_logit_softcapping"))->logit_cap, 0);
  EXPECT_EQ(Read("mistral_sliding", erase("num_key_value_heads")).error().code,
            ErrorCode::kCorrupt);  // 8 keys for 6 heads
  EXPECT_EQ(Read("mistral_sliding", null("num_key_value_heads"))->kv_heads, 6);
}

TEST_F(DecoderConfigTest, RefusesByName) {
  const auto set = [](const char* key, const json& value) {
    return [key, value](json& c) { c[key] = value; };
  };
  EXPECT_THAT(ErrorOf("llama", set("model_type", "smollm3")), HasSubstr("family smollm3"));
  EXPECT_THAT(ErrorOf("llama", set("rope_parameters", {{"rope_type", "yarn"}, {"factor", 2.0}})),
              HasSubstr("type \"yarn\""));
  EXPECT_THAT(ErrorOf("llama", set("rope_parameters", {{"rope_type", "linear"}})),
              HasSubstr("rope_parameters has no factor"));
  EXPECT_THAT(ErrorOf("llama", set("rope_parameters", {{"partial_rotary_factor", 0.5}})),
              HasSubstr("partial_rotary_factor is 0.5"));
  EXPECT_THAT(ErrorOf("gemma2", set("layer_types", {"full_attention", "chunked_attention"})),
              HasSubstr("\"chunked_attention\""));
  EXPECT_THAT(ErrorOf("gemma2", set("layer_types", {"full_attention"})), HasSubstr("2 layers"));
  EXPECT_THAT(ErrorOf("gemma3", set("use_bidirectional_attention", true)),
              HasSubstr("use_bidirectional_attention is true"));
  EXPECT_THAT(ErrorOf("llama", set("num_key_value_heads", 4)), HasSubstr("6 heads cannot share 4"));
  EXPECT_THAT(ErrorOf("llama", set("head_dim", 7)), HasSubstr("heads of 7 values"));
  EXPECT_THAT(ErrorOf("llama", set("rms_norm_eps", -1)), HasSubstr("epsilon of the norms is -1"));
  EXPECT_THAT(ErrorOf("llama", set("rope_parameters", {{"rope_theta", 0}})), HasSubstr("is 0"));
  EXPECT_THAT(ErrorOf("llama", set("num_attention_heads", "six")),
              HasSubstr("num_attention_heads"));
}

TEST_F(DecoderConfigTest, GgufSizesBeyondAnyModelAreRefusedByName) {
  const std::string path = dir_.File("model.gguf");
  WriteGgufFixture("gemma2", path);
  const std::string whole = ReadBytes(path);
  for (const std::string key : {"gemma2.attention.sliding_window", "gemma2.attention.key_length",
                                "gemma2.attention.head_count"}) {
    std::string bytes = whole;
    const std::string text = GgufWriter::Text(key);
    const size_t at = bytes.find(text) + text.size() + sizeof(uint32_t);  // after the type
    bytes.replace(at, sizeof(uint32_t), BytesOf<uint32_t>(UINT32_MAX));
    WriteBytes(path, bytes);
    const auto checkpoint = Checkpoint::Open(path, std::nullopt);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto config = ReadDecoderConfig(*checkpoint);
    ASSERT_FALSE(config) << key;
    EXPECT_THAT(config.error().message,
                HasSubstr(path + ": " + key + " is 4294967295, larger than any model's"));
  }
}

}  // namespace
}  // namespace sluice::test
