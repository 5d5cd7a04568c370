// Files changed at random: each is read or refused, and nothing else happens. Replayable by
// SLUICE_TEST_SEED; the sanitizer build is where this bites.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "quant/checkpoint/config.h"
#include "quant/checkpoint/gguf.h"
#include "tests/quant/checkpoint/tiny_checkpoint.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

// One to four changes: a bit, a byte, a length or count near a limit, a piece removed, doubled or
// moved, an end cut off.
std::string Mutate(test::Random& random, std::string bytes) {
  const auto place = [&] { return static_cast<size_t>(random.Integer(0, 1 << 20)) % bytes.size(); };
  for (int n = random.Integer(1, 4); n > 0 && bytes.size() > 16; --n) {
    const size_t at = place();
    const size_t length = std::min(place() % 24, bytes.size() - at);
    switch (random.Integer(0, 6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Integer(0, 7)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random.Integer(0, 255));
        break;
      case 2: {
        constexpr uint64_t kEdges[] = {0,
                                       1,
                                       127,
                                       255,
                                       0x7FFFFFFF,
                                       0xFFFFFFFF,
                                       uint64_t{1} << 32,
                                       uint64_t{1} << 62,
                                       uint64_t{1} << 63,
                                       ~uint64_t{0},
                                       ~uint64_t{0} - 31};
        const uint64_t edge = kEdges[random.Integer(0, std::size(kEdges) - 1)];
        std::memcpy(bytes.data() + at, &edge, std::min<size_t>(8, bytes.size() - at));
        break;
      }
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 5:
        bytes.insert(place(), bytes.substr(at, length));
        break;
      default:
        bytes.resize(at + 1);
    }
  }
  return bytes;
}

std::string SmallGguf() {
  test::GgufWriter file;
  file.String("general.architecture", "llama")
      .U32("llama.block_count", 2)
      .U32("llama.embedding_length", 4)
      .U32s("llama.feed_forward_length", {6, 6})
      .Strings("tokenizer.ggml.tokens", {"a", "bb", ""})
      .Raw("f", test::kGgufF32, test::BytesOf(1.5f));
  test::AddTinyLayers(file, "blk.", {{"ffn_gate", "ffn_up", "ffn_down"}});
  file.Tensor("token_embd.weight", {2, 32}, test::kGgmlQ40, std::string(36, '\x11'));
  return file.Build();
}

TEST(Mutation, Gguf) {
  test::Random random;
  const std::string original = SmallGguf();
  int accepted = 0;
  for (int i = 0; i < 8'000; ++i) {
    const std::string bytes = Mutate(random, original);
    const Expected<Gguf> gguf = Gguf::Parse("m.gguf", std::as_bytes(std::span(bytes)));
    if (!gguf) {
      ASSERT_FALSE(gguf.error().message.empty());
      ASSERT_EQ(gguf.error().message.find('\n'), std::string::npos) << gguf.error().message;
      continue;
    }
    ++accepted;
    // What was accepted can be read to its last byte.
    for (const GgufTensor& tensor : gguf->tensors()) {
      uint64_t values = 1;
      for (const uint64_t n : tensor.shape) values *= n;
      ASSERT_EQ(values / tensor.format->values * tensor.format->bytes, tensor.bytes.size());
      if (tensor.format->decode == nullptr) continue;
      std::vector<float> out(values);
      tensor.format->decode(tensor.bytes.data(), values / tensor.format->values, out.data());
    }
    const Expected<ModelConfig> config = ReadGgufConfig("m.gguf", *gguf);
    if (!config) {
      ASSERT_EQ(config.error().message.find('\n'), std::string::npos);
    }
  }
  // Most of the file's bytes are values of weights, so most single changes go unnoticed.
  EXPECT_GT(accepted, 400);
}

// From the file on disk to the last weight.
TEST(Mutation, GgufFiles) {
  test::Random random;
  test::TempDir dir;
  const std::string path = dir.File("m.gguf");
  const std::string original = SmallGguf();
  int loaded = 0;
  for (int i = 0; i < 500; ++i) {
    test::WriteBytes(path, Mutate(random, original));
    const Expected<Checkpoint> checkpoint = Checkpoint::Open(path, std::nullopt);
    if (!checkpoint) continue;
    for (const SourceLayer& layer : checkpoint->layers()) {
      const Expected<FfnWeights> weights = checkpoint->Load(layer.layer);
      if (!weights) continue;
      ++loaded;
      for (const Matrix m : kMatrices) {
        for (const float v : weights->matrices[m].weights) ASSERT_TRUE(std::isfinite(v));
      }
    }
  }
  EXPECT_GT(loaded, 25);
}

TEST(Mutation, SafetensorsFiles) {
  test::Random random;
  test::TempDir dir;
  const std::string original = test::TinyLlama().Build();
  test::WriteBytes(dir.File("config.json"), test::kTinyLlamaConfig);
  int loaded = 0;
  for (int i = 0; i < 500; ++i) {
    test::WriteBytes(dir.File("model.safetensors"), Mutate(random, original));
    const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.path(), std::nullopt);
    if (!checkpoint) continue;
    for (const SourceLayer& layer : checkpoint->layers())
      loaded += checkpoint->Load(layer.layer) ? 1 : 0;
  }
  EXPECT_GT(loaded, 10);
}

TEST(Mutation, Config) {
  test::Random random;
  const std::string originals[] = {
      std::string(test::kTinyLlamaConfig),
      R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":4,
          "hidden_activation":"gelu_pytorch_tanh"}})",
      R"({"dim":4,"n_layers":2,"multiple_of":6,"ffn_dim_multiplier":1.3})",
      R"({"architectures":["GPT2LMHeadModel"],"n_embd":4,"n_inner":null})"};
  int accepted = 0;
  for (int i = 0; i < 8'000; ++i) {
    const std::string text = Mutate(random, originals[i % 4]);
    const Expected<ModelConfig> config = ParseConfig("config.json", text);
    if (config) {
      ++accepted;
      ASSERT_NE(config->architecture, nullptr);
      ASSERT_NE(config->biases, Biases::kMlpBias);
    } else {
      ASSERT_EQ(config.error().message.find('\n'), std::string::npos) << config.error().message;
    }
  }
  EXPECT_GT(accepted, 40);
}

}  // namespace
}  // namespace sluice
