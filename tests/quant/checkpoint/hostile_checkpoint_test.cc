// Checkpoints that must be refused, by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <format>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "tests/quant/checkpoint/tiny_checkpoint.h"

namespace sluice {
namespace {

using test::GgufWriter;
using test::kTinyLlamaConfig;
using test::OpenError;
using test::SafetensorsBytes;
using test::TempDir;
using test::TinyMatrix;
using test::WriteBytes;
using test::WriteTiny;
using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kLlama = R"({"model_type":"llama"})";

// A block of 2×2 matrices in which up is what the test makes it.
SafetensorsBytes LlamaWithUp(std::string_view dtype, const std::vector<uint64_t>& shape,
                             std::string_view data) {
  SafetensorsBytes file;
  file.F32("model.layers.0.mlp.gate_proj.weight", {2, 2}, {1, 2, 3, 4});
  file.Tensor("model.layers.0.mlp.up_proj.weight", dtype, shape, data);
  file.F32("model.layers.0.mlp.down_proj.weight", {2, 2}, {1, 2, 3, 4});
  return file;
}

std::string SafetensorsError(const SafetensorsBytes& file, std::string_view config = kLlama) {
  TempDir dir;
  WriteTiny(dir, file, config);
  return OpenError(dir.path());
}

std::string GgufError(const GgufWriter& file) {
  TempDir dir;
  WriteBytes(dir.File("m.gguf"), file.Build());
  return OpenError(dir.File("m.gguf"));
}

TEST(Refusals, TypesThatCannotBeRead) {
  const std::pair<const char*, size_t> types[] = {{"F64", 8}, {"F8_E4M3", 1}, {"I8", 1},
                                                  {"U8", 1},  {"I32", 4},     {"BOOL", 1}};
  for (const auto& [dtype, bytes] : types) {
    EXPECT_THAT(SafetensorsError(LlamaWithUp(dtype, {2, 2}, std::string(4 * bytes, '\0'))),
                AllOf(HasSubstr("model.layers.0.mlp.up_proj.weight"), HasSubstr(dtype),
                      HasSubstr("not supported")));
  }
  // A dtype that only GGUF has, of which safetensors checks no size: 18 bytes, one block's, are
  // said to be 2^40 values.
  EXPECT_THAT(SafetensorsError(LlamaWithUp("Q4_0", {uint64_t{1} << 20, uint64_t{1} << 20},
                                           std::string(18, '\0'))),
              AllOf(HasSubstr("up_proj"), HasSubstr("\"Q4_0\""), HasSubstr("not supported")));
  const std::tuple<const char*, uint32_t, uint64_t, size_t> gguf_types[] = {
      {"Q2_K", 10, 256, 84}, {"MXFP4", 39, 32, 17}, {"I8", 24, 1, 1}, {"F64", 28, 1, 8}};
  for (const auto& [name, number, values, bytes] : gguf_types) {
    GgufWriter gguf;
    gguf.String("general.architecture", "llama");
    gguf.Tensor("blk.0.ffn_up.weight", {1, values}, number, std::string(bytes, '\0'));
    EXPECT_THAT(GgufError(gguf), AllOf(HasSubstr("blk.0.ffn_up.weight"), HasSubstr(name)));
  }
}

TEST(Refusals, TypesThatCannotBeReadElsewhereDoNotMatter) {
  TempDir dir;
  SafetensorsBytes file = test::TinyLlama();
  file.Tensor("lm_head.weight", "F8_E4M3", {4}, "abcd");
  file.Tensor("model.embed_tokens.weight", "MYSTERY", {4}, "abcd");
  WriteTiny(dir, file, kTinyLlamaConfig);
  EXPECT_TRUE(Checkpoint::Open(dir.path(), std::nullopt));
}

TEST(Refusals, PackedWeights) {
  SafetensorsBytes gptq;
  for (const char* m : {"gate", "up", "down"}) {
    const std::string base = std::format("model.layers.0.mlp.{}_proj.", m);
    gptq.Tensor(base + "qweight", "I32", {1, 2}, "12345678");
    gptq.Tensor(base + "qzeros", "I32", {1}, "1234");
    gptq.F32(base + "scales", {1}, {1});
  }
  EXPECT_THAT(SafetensorsError(gptq),
              AllOf(HasSubstr("model.layers.0.mlp."), HasSubstr("packed format")));
  // One matrix packed, the others not.
  SafetensorsBytes mixed;
  mixed.F32("model.layers.0.mlp.up_proj.weight", {2, 2}, {1, 2, 3, 4});
  mixed.F32("model.layers.0.mlp.down_proj.weight", {2, 2}, {1, 2, 3, 4});
  mixed.Tensor("model.layers.0.mlp.gate_proj.weight_packed", "U8", {2}, "12");
  EXPECT_THAT(
      SafetensorsError(mixed),
      AllOf(HasSubstr("model.layers.0.mlp.gate_proj.weight_packed"), HasSubstr("packed format")));
}

TEST(Refusals, ShapesThatDisagree) {
  const auto block = [](const std::vector<uint64_t>& gate, const std::vector<uint64_t>& up,
                        const std::vector<uint64_t>& down) {
    SafetensorsBytes file;
    const auto add = [&](const char* name, const std::vector<uint64_t>& shape) {
      uint64_t count = 1;
      for (const uint64_t n : shape) count *= n;
      file.F32(std::format("model.layers.0.mlp.{}_proj.weight", name), shape,
               std::vector<float>(count, 1.0f));
    };
    add("gate", gate);
    add("up", up);
    add("down", down);
    return file;
  };
  // Among themselves.
  EXPECT_THAT(SafetensorsError(block({5, 2}, {6, 2}, {2, 6})),
              AllOf(HasSubstr("gate_proj.weight\" is [5, 2], expected [6, 2]"),
                    HasSubstr("d_ff 6 by tensor model.layers.0.mlp.up_proj.weight")));
  EXPECT_THAT(SafetensorsError(block({6, 2}, {6, 2}, {6, 2})),
              HasSubstr("down_proj.weight\" is [6, 2], expected [2, 6]"));
  EXPECT_THAT(SafetensorsError(block({6, 2}, {6, 2, 1}, {2, 6})), HasSubstr("is [6, 2, 1]"));
  EXPECT_THAT(SafetensorsError(block({12}, {12}, {12})), HasSubstr("is [12]"));
  EXPECT_THAT(SafetensorsError(block({0, 2}, {0, 2}, {2, 0})), HasSubstr("is [0, 2]"));
  // Against the configuration.
  EXPECT_THAT(SafetensorsError(block({6, 2}, {6, 2}, {2, 6}),
                               R"({"model_type":"llama","hidden_size":3,"intermediate_size":6})"),
              AllOf(HasSubstr("is [6, 2], expected [6, 3]"), HasSubstr("hidden_size 3"),
                    HasSubstr("intermediate_size 6"), HasSubstr("config.json")));
  // A layer that is not as wide as the one before.
  SafetensorsBytes uneven = test::TinyLlama();
  uneven.F32("model.layers.2.mlp.gate_proj.weight", {6, 5}, std::vector<float>(30, 1));
  uneven.F32("model.layers.2.mlp.up_proj.weight", {6, 5}, std::vector<float>(30, 1));
  uneven.F32("model.layers.2.mlp.down_proj.weight", {5, 6}, std::vector<float>(30, 1));
  EXPECT_THAT(SafetensorsError(uneven),
              AllOf(HasSubstr("layers.2.mlp.gate_proj"), HasSubstr("is [6, 5], expected [6, 4]")));
}

TEST(Refusals, AnOddFusedTensorAndAWrongBias) {
  SafetensorsBytes phi;
  phi.F32("model.layers.0.mlp.gate_up_proj.weight", {5, 2}, std::vector<float>(10, 1));
  phi.F32("model.layers.0.mlp.down_proj.weight", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(SafetensorsError(phi, R"({"model_type":"phi3"})"),
              AllOf(HasSubstr("gate_up_proj.weight"), HasSubstr("[5, 2]")));
  SafetensorsBytes bert;
  bert.F32("encoder.layer.0.intermediate.dense.weight", {3, 2}, std::vector<float>(6, 1));
  bert.F32("encoder.layer.0.intermediate.dense.bias", {2}, {1, 1});
  bert.F32("encoder.layer.0.output.dense.weight", {2, 3}, std::vector<float>(6, 1));
  EXPECT_THAT(SafetensorsError(bert, R"({"model_type":"bert"})"),
              AllOf(HasSubstr("intermediate.dense.bias"), HasSubstr("is [2], expected [3]")));
}

TEST(Refusals, MissingTensorsAndLayers) {
  SafetensorsBytes no_gate;
  no_gate.F32("model.layers.0.mlp.up_proj.weight", {2, 2}, {1, 2, 3, 4});
  no_gate.F32("model.layers.0.mlp.down_proj.weight", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(SafetensorsError(no_gate),
              AllOf(HasSubstr("model.layers.0.mlp.gate_proj.weight"), HasSubstr("missing")));
  SafetensorsBytes none;
  none.F32("model.norm.weight", {1}, {1});
  // A layer's number that is none: too long, or with a zero before it.
  none.F32("model.layers.99999999999999999999.mlp.up_proj.weight", {1, 1}, {1});
  none.F32("model.layers.00.mlp.up_proj.weight", {1, 1}, {1});
  none.F32("model.layers.x.mlp.up_proj.weight", {1, 1}, {1});
  EXPECT_THAT(SafetensorsError(none),
              AllOf(HasSubstr("no feed-forward tensors of architecture llama"),
                    HasSubstr("model.layers.N.mlp.up_proj.weight")));
  // A family's tensors under another family's configuration.
  EXPECT_THAT(SafetensorsError(test::TinyLlama(), R"({"model_type":"phi3"})"),
              HasSubstr("gate_up_proj"));
  EXPECT_THAT(SafetensorsError(test::TinyLlama(), R"({"model_type":"bert"})"),
              HasSubstr("no feed-forward tensors of architecture bert"));
}

TEST(Refusals, TwoSetsOfTensors) {
  SafetensorsBytes file = test::TinyLlama();
  test::AddTinyLayers(file, "layers.", test::kTinyProjections);
  EXPECT_THAT(SafetensorsError(file),
              AllOf(HasSubstr("two sets"), HasSubstr("model.layers.0.mlp.up_proj"),
                    HasSubstr(" layers.0.mlp.up_proj")));
}

TEST(Refusals, MixturesOfExperts) {
  SafetensorsBytes mixtral = test::TinyLlama();
  mixtral.F32("model.layers.0.mlp.experts.0.gate_proj.weight", {1}, {1});
  EXPECT_THAT(SafetensorsError(mixtral), AllOf(HasSubstr("mixture of experts is not supported"),
                                               HasSubstr("experts.0.gate_proj")));
  GgufWriter counted;
  counted.String("general.architecture", "llama").U32("llama.expert_count", 8);
  EXPECT_THAT(GgufError(counted), HasSubstr("mixture of experts is not supported"));
  GgufWriter by_name;
  by_name.String("general.architecture", "qwen3moe");
  EXPECT_THAT(GgufError(by_name),
              AllOf(HasSubstr("mixture of experts is not supported"), HasSubstr("qwen3moe")));
  GgufWriter by_tensor;
  by_tensor.String("general.architecture", "llama").F32("blk.0.ffn_up_exps.weight", {1}, {1});
  EXPECT_THAT(GgufError(by_tensor), HasSubstr("mixture of experts is not supported"));
}

TEST(Refusals, GgufFamilies) {
  EXPECT_THAT(GgufError(GgufWriter()), HasSubstr("general.architecture"));
  EXPECT_THAT(GgufError(GgufWriter().String("general.architecture", "falcon")),
              AllOf(HasSubstr("\"falcon\""), HasSubstr("not supported"), HasSubstr("llama")));
  EXPECT_THAT(GgufError(GgufWriter().String("general.architecture", "a\nb")),
              HasSubstr("\"a\\x0Ab\""));
  EXPECT_THAT(GgufError(GgufWriter().U32("general.architecture", 1)), HasSubstr("not a string"));
  EXPECT_THAT(GgufError(GgufWriter().String("general.architecture", "llama").U32("split.count", 3)),
              HasSubstr("one of the 3 parts"));
  EXPECT_THAT(
      GgufError(
          GgufWriter().String("general.architecture", "llama").String("llama.block_count", "3")),
      HasSubstr("llama.block_count"));
  EXPECT_THAT(GgufError(GgufWriter()
                            .String("general.architecture", "llama")
                            .U32("llama.block_count", 0xFFFFFFFF)),
              AllOf(HasSubstr("llama.block_count is 4294967295"), HasSubstr("larger than any")));
}

// H18: a shard cut by one byte, by half, to its header.
TEST(Refusals, H18TruncatedFiles) {
  const std::string whole = test::TinyLlama().Build();
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof(header));
  const size_t header_end = 8 + static_cast<size_t>(header);
  for (const size_t size : {whole.size() - 1, whole.size() / 2, header_end, size_t{7}}) {
    TempDir dir;
    WriteBytes(dir.File("model.safetensors"), whole.substr(0, size));
    WriteBytes(dir.File("config.json"), kTinyLlamaConfig);
    EXPECT_THAT(OpenError(dir.path()), HasSubstr(dir.File("model.safetensors"))) << size;
  }
}

// H18: a file of the right length whose end was never written reads as zeros; all of it must be
// reported by whoever sees the zeros, so they must arrive.
TEST(Refusals, H18UnwrittenPagesReadAsZeros) {
  TempDir dir;
  const std::string whole = test::TinyLlama().Build();
  // The last tensor of the file is layer 1's down.
  WriteBytes(dir.File("model.safetensors"), whole.substr(0, whole.size() - 4 * 24));
  std::filesystem::resize_file(dir.File("model.safetensors"), whole.size());
  WriteBytes(dir.File("config.json"), kTinyLlamaConfig);
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.path(), std::nullopt);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->Load(1, Matrix::kDown)->weights, std::vector<float>(24, 0.0f));
  EXPECT_EQ(checkpoint->Load(1, Matrix::kUp)->weights, TinyMatrix(1, Matrix::kUp));
}

}  // namespace
}  // namespace sluice
