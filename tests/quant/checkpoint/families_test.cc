// Every family from a tiny checkpoint: names, orientation, activation, biases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <format>
#include <string>
#include <utility>
#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "tests/quant/checkpoint/tiny_checkpoint.h"

namespace sluice {
namespace {

using test::AddTiny;
using test::AddTinyLayers;
using test::ExpectTinyLayer;
using test::GgufWriter;
using test::kTinyFf;
using test::kTinyModel;
using test::kTinyProjections;
using test::OpenError;
using test::SafetensorsBytes;
using test::TempDir;
using test::TinyBias;
using test::TinyMatrix;
using test::TinyTransposed;
using test::WriteTiny;
using testing::AllOf;
using testing::HasSubstr;

struct Block {
  std::string architecture;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool biases = false;
};

// Two layers of the tiny shape, with the values in their places.
void ExpectTiny(const std::string& path, const Block& want) {
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(path, std::nullopt);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->architecture(), want.architecture);
  EXPECT_THAT(checkpoint->warnings(), testing::IsEmpty());
  ASSERT_EQ(checkpoint->layers().size(), 2u);
  for (size_t layer = 0; layer < 2; ++layer) {
    const SourceLayer& source = checkpoint->layers()[layer];
    EXPECT_EQ(source.layer, layer);
    EXPECT_EQ(source.d_model, kTinyModel);
    EXPECT_EQ(source.d_ff, kTinyFf);
    EXPECT_EQ(source.activation, want.activation) << Name(source.activation);
    EXPECT_EQ(source.gated, want.gated);
    EXPECT_EQ(source.matrices[Matrix::kGate].has_value(), want.gated);
    ExpectTinyLayer(*checkpoint, layer, want.gated, want.biases);
  }
}

std::string Config(std::string_view model_type, std::string_view more = "") {
  return std::format(R"({{"model_type":"{}","hidden_size":4,"intermediate_size":6,)"
                     R"("num_hidden_layers":2{}{}}})",
                     model_type, more.empty() ? "" : ",", more);
}

// ---- Hugging Face ----

TEST(Families, WithSplitProjections) {
  const std::pair<const char*, Activation> families[] = {
      {"llama", Activation::kSilu},      {"mistral", Activation::kSilu},
      {"qwen2", Activation::kSilu},      {"qwen3", Activation::kSilu},
      {"smollm3", Activation::kSilu},    {"gemma", Activation::kGeluTanh},
      {"gemma2", Activation::kGeluTanh}, {"gemma3_text", Activation::kGeluTanh}};
  for (const auto& [type, activation] : families) {
    for (const std::string prefix : {"model.", ""}) {
      SCOPED_TRACE(type + (" with prefix " + prefix));
      TempDir dir;
      SafetensorsBytes file;
      AddTinyLayers(file, prefix + "layers.", kTinyProjections);
      WriteTiny(dir, file, Config(type));
      const std::string name = std::string_view(type) == "gemma3_text" ? "gemma3" : type;
      ExpectTiny(dir.path(), {.architecture = name, .activation = activation});
    }
  }
}

TEST(Families, LlamaBiasesFollowMlpBias) {
  TempDir dir;
  SafetensorsBytes file;
  AddTinyLayers(file, "model.layers.", kTinyProjections, /*biases=*/true);
  WriteTiny(dir, file, Config("llama", R"("mlp_bias":true)"));
  ExpectTiny(dir.path(), {.architecture = "llama", .biases = true});
  for (const char* without : {R"("mlp_bias":false)", ""}) {
    WriteTiny(dir, file, Config("llama", without));
    EXPECT_THAT(OpenError(dir.path()),
                AllOf(HasSubstr("model.layers.0.mlp.gate_proj.bias"), HasSubstr("no biases")));
  }
  WriteTiny(dir, test::TinyLlama(), Config("llama", R"("mlp_bias":true)"));
  EXPECT_THAT(OpenError(dir.path()),
              AllOf(HasSubstr("model.layers.0.mlp.gate_proj.bias"), HasSubstr("missing")));
}

TEST(Families, Gemma3NestsItsTextModel) {
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    TempDir dir;
    SafetensorsBytes file;
    AddTinyLayers(file, prefix + "layers.", kTinyProjections);
    // A vision tower's layers are not the language model's.
    file.F32("vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", {1}, {1});
    WriteTiny(dir, file,
              R"({"model_type":"gemma3","hidden_size":999,"vision_config":{"hidden_size":8},
                  "text_config":{"model_type":"gemma3_text","hidden_size":4,
                                 "intermediate_size":6,"num_hidden_layers":2}})");
    ExpectTiny(dir.path(), {.architecture = "gemma3", .activation = Activation::kGeluTanh});
  }
}

SafetensorsBytes TinyPhi3() {
  SafetensorsBytes file;
  for (size_t layer = 0; layer < 2; ++layer) {
    std::vector<float> fused = TinyMatrix(layer, Matrix::kGate);
    const std::vector<float> up = TinyMatrix(layer, Matrix::kUp);
    fused.insert(fused.end(), up.begin(), up.end());
    const std::string base = std::format("model.layers.{}.mlp.", layer);
    file.F32(base + "gate_up_proj.weight", {2 * kTinyFf, kTinyModel}, fused);
    AddTiny(file, base + "down_proj", layer, Matrix::kDown);
  }
  return file;
}

TEST(Families, Phi3SplitsTheFusedTensor) {
  TempDir dir;
  WriteTiny(dir, TinyPhi3(), Config("phi3", R"("hidden_act":"silu")"));
  ExpectTiny(dir.path(), {.architecture = "phi3"});
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.path(), std::nullopt);
  ASSERT_TRUE(checkpoint);
  const SourceLayer& layer = checkpoint->layers()[1];
  EXPECT_EQ(layer.matrices[Matrix::kGate]->name, "model.layers.1.mlp.gate_proj.weight");
  EXPECT_EQ(layer.matrices[Matrix::kUp]->name, "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(layer.matrices[Matrix::kDown]->name, "model.layers.1.mlp.down_proj.weight");
  EXPECT_EQ(layer.matrices[Matrix::kGate]->bytes, kTinyFf * kTinyModel * sizeof(float));
}

SafetensorsBytes TinyBert(const std::string& prefix) {
  SafetensorsBytes file;
  AddTinyLayers(file, prefix + "encoder.layer.", {{"", "intermediate.dense", "output.dense"}},
                /*biases=*/true);
  // Attention's own output, of the shape that "output.dense" would have if d_ff were d_model.
  for (size_t layer = 0; layer < 2; ++layer) {
    file.F32(std::format("{}encoder.layer.{}.attention.output.dense.weight", prefix, layer),
             {kTinyModel, kTinyModel}, std::vector<float>(kTinyModel * kTinyModel, -1.0f));
  }
  return file;
}

TEST(Families, Bert) {
  for (const std::string prefix : {"bert.", ""}) {
    TempDir dir;
    WriteTiny(dir, TinyBert(prefix), Config("bert", R"("hidden_act":"gelu")"));
    ExpectTiny(
        dir.path(),
        {.architecture = "bert", .activation = Activation::kGelu, .gated = false, .biases = true});
    const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.path(), std::nullopt);
    ASSERT_TRUE(checkpoint);
    const auto& up = checkpoint->layers()[0].matrices[Matrix::kUp];
    EXPECT_EQ(up->name, prefix + "encoder.layer.0.intermediate.dense.weight");
    EXPECT_EQ(up->bias_name, prefix + "encoder.layer.0.intermediate.dense.bias");
    EXPECT_EQ(up->type, "F32");
  }
}

SafetensorsBytes TinyGpt2(const std::string& prefix) {
  SafetensorsBytes file;
  for (size_t layer = 0; layer < 2; ++layer) {
    for (const auto& [m, name] : {std::pair(Matrix::kUp, "c_fc"), {Matrix::kDown, "c_proj"}}) {
      const std::string base = std::format("{}h.{}.mlp.{}", prefix, layer, name);
      file.F32(base + ".weight", {test::TinyCols(m), test::TinyRows(m)}, TinyTransposed(layer, m));
      file.F32(base + ".bias", {test::TinyRows(m)}, TinyBias(layer, m));
    }
    file.F32(std::format("{}h.{}.attn.c_proj.weight", prefix, layer), {2, 2}, {1, 2, 3, 4});
  }
  return file;
}

TEST(Families, Gpt2IsStoredInByOut) {
  for (const std::string prefix : {"transformer.", ""}) {
    TempDir dir;
    WriteTiny(dir, TinyGpt2(prefix),
              R"({"model_type":"gpt2","activation_function":"gelu_new","n_embd":4,"n_inner":6,
                  "n_layer":2})");
    ExpectTiny(dir.path(), {.architecture = "gpt2",
                            .activation = Activation::kGeluTanh,
                            .gated = false,
                            .biases = true});
  }
}

// H12: where both matrices are square, only the family tells.
TEST(Families, H12SquareConv1D) {
  TempDir dir;
  SafetensorsBytes file;
  for (const char* name : {"h.0.mlp.c_fc", "h.0.mlp.c_proj"}) {
    file.F32(std::string(name) + ".weight", {2, 2}, {1, 2, 3, 4});
    file.F32(std::string(name) + ".bias", {2}, {0, 0});
  }
  WriteTiny(dir, file, R"({"model_type":"gpt2","n_embd":2,"n_inner":2,"n_layer":1})");
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.path(), std::nullopt);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  for (const Matrix m : {Matrix::kUp, Matrix::kDown}) {
    const Expected<LinearWeights> w = checkpoint->Load(0, m);
    ASSERT_TRUE(w) << w.error().message;
    // x = [1, 0] picks the first input: x·W is the tensor's first row.
    EXPECT_EQ(w->weights[0], 1.0f);
    EXPECT_EQ(w->weights[2], 2.0f);
    EXPECT_EQ(w->weights, (std::vector<float>{1, 3, 2, 4}));
  }
}

TEST(Families, H12Gpt2ShapesAreCheckedAgainstTheConfiguration) {
  TempDir dir;
  SafetensorsBytes file;  // as nanoGPT has them: [out, in]
  file.F32("transformer.h.0.mlp.c_fc.weight", {8, 2}, std::vector<float>(16));
  file.F32("transformer.h.0.mlp.c_proj.weight", {2, 8}, std::vector<float>(16));
  WriteTiny(dir, file, R"({"model_type":"gpt2","n_embd":2,"n_inner":null,"n_layer":1})");
  EXPECT_THAT(OpenError(dir.path()),
              AllOf(HasSubstr("transformer.h.0.mlp.c_fc.weight"), HasSubstr("is [8, 2]"),
                    HasSubstr("expected [2, 8]"), HasSubstr("n_embd 2")));
}

// ---- Meta and Mistral ----

const PerMatrix<std::string> kMetaNames = {
    {"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"}};

TEST(Families, MetaW1IsGateAndW3IsUp) {
  TempDir dir;
  SafetensorsBytes file;
  AddTinyLayers(file, "layers.", kMetaNames);
  test::WriteBytes(dir.File("consolidated.safetensors"), file.Build());
  // 2 · 4 · 4 / 3 = 10, times 0.5 is 5, up to a multiple of 6.
  test::WriteBytes(dir.File("params.json"),
                   R"({"dim":4,"n_layers":2,"multiple_of":6,"ffn_dim_multiplier":0.5})");
  ExpectTiny(dir.path(), {.architecture = "llama"});
  test::WriteBytes(dir.File("params.json"), R"({"dim":4,"n_layers":2,"multiple_of":6})");
  EXPECT_THAT(OpenError(dir.path()),
              AllOf(HasSubstr("layers.0.feed_forward.w1.weight"),
                    HasSubstr("is [6, 4], expected [12, 4]"), HasSubstr("multiple_of 6")));
}

TEST(Families, MistralStatesHiddenDim) {
  TempDir dir;
  SafetensorsBytes file;
  AddTinyLayers(file, "layers.", kMetaNames);
  test::WriteBytes(dir.File("consolidated.safetensors"), file.Build());
  test::WriteBytes(dir.File("params.json"), R"({"dim":4,"n_layers":2,"hidden_dim":6})");
  ExpectTiny(dir.path(), {.architecture = "mistral"});
  test::WriteBytes(dir.File("params.json"), R"({"dim":4,"n_layers":2,"hidden_dim":7})");
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("hidden_dim 7"));
}

// ---- GGUF ----

GgufWriter TinyGguf(const std::string& architecture) {
  GgufWriter file;
  file.String("general.architecture", architecture)
      .U32(architecture + ".embedding_length", 4)
      .U32(architecture + ".feed_forward_length", 6)
      .U32(architecture + ".block_count", 2)
      .F32("output_norm.weight", {4}, {1, 1, 1, 1});
  return file;
}

std::string Written(const TempDir& dir, const GgufWriter& file) {
  test::WriteBytes(dir.File("model.gguf"), file.Build());
  return dir.File("model.gguf");
}

TEST(Families, GgufGated) {
  const std::pair<const char*, Activation> families[] = {
      {"llama", Activation::kSilu},     {"qwen2", Activation::kSilu},
      {"qwen3", Activation::kSilu},     {"smollm3", Activation::kSilu},
      {"gemma", Activation::kGeluTanh}, {"gemma2", Activation::kGeluTanh},
      {"gemma3", Activation::kGeluTanh}};
  for (const auto& [name, activation] : families) {
    SCOPED_TRACE(name);
    TempDir dir;
    GgufWriter file = TinyGguf(name);
    AddTinyLayers(file, "blk.", {{"ffn_gate", "ffn_up", "ffn_down"}});
    file.F32("blk.0.ffn_norm.weight", {4}, {1, 1, 1, 1});
    ExpectTiny(Written(dir, file), {.architecture = name, .activation = activation});
    // A folder with one GGUF in it is that GGUF.
    ExpectTiny(dir.path(), {.architecture = name, .activation = activation});
  }
}

TEST(Families, GgufUngated) {
  for (const auto& [name, activation] :
       {std::pair("bert", Activation::kGelu), {"gpt2", Activation::kGeluTanh}}) {
    SCOPED_TRACE(name);
    TempDir dir;
    GgufWriter file = TinyGguf(name);
    AddTinyLayers(file, "blk.", {{"", "ffn_up", "ffn_down"}}, /*biases=*/true);
    ExpectTiny(Written(dir, file),
               {.architecture = name, .activation = activation, .gated = false, .biases = true});
  }
}

TEST(Families, GgufLlamaMayHaveBiases) {
  TempDir dir;
  GgufWriter file = TinyGguf("llama");
  AddTinyLayers(file, "blk.", {{"ffn_gate", "ffn_up", "ffn_down"}}, /*biases=*/true);
  ExpectTiny(Written(dir, file), {.architecture = "llama", .biases = true});
}

TEST(Families, GgufPhi3SplitsTheFusedTensor) {
  TempDir dir;
  GgufWriter file = TinyGguf("phi3");
  for (size_t layer = 0; layer < 2; ++layer) {
    std::vector<float> fused = TinyMatrix(layer, Matrix::kGate);
    const std::vector<float> up = TinyMatrix(layer, Matrix::kUp);
    fused.insert(fused.end(), up.begin(), up.end());
    file.F32(std::format("blk.{}.ffn_up.weight", layer), {2 * kTinyFf, kTinyModel}, fused);
    AddTiny(file, std::format("blk.{}.ffn_down", layer), layer, Matrix::kDown);
  }
  ExpectTiny(Written(dir, file), {.architecture = "phi3"});
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.File("model.gguf"), std::nullopt);
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->layers()[0].matrices[Matrix::kGate]->name, "blk.0.ffn_gate.weight");
  EXPECT_EQ(checkpoint->layers()[0].matrices[Matrix::kUp]->name, "blk.0.ffn_up.weight");
}

TEST(Families, GgufWidthsMayDifferByLayer) {
  TempDir dir;
  const auto file = [](const std::vector<uint32_t>& widths) {
    GgufWriter writer;
    writer.String("general.architecture", "llama")
        .U32("llama.embedding_length", 4)
        .U32s("llama.feed_forward_length", widths)
        .U32("llama.block_count", static_cast<uint32_t>(widths.size()));
    for (const auto& [layer, width] : {std::pair(0, 2u), {2, 3u}}) {
      const std::string base = std::format("blk.{}.ffn_", layer);
      writer.F32(base + "gate.weight", {width, 4}, std::vector<float>(4 * width, 1));
      writer.F32(base + "up.weight", {width, 4}, std::vector<float>(4 * width, 2));
      writer.F32(base + "down.weight", {4, width}, std::vector<float>(4 * width, 3));
    }
    return writer;
  };
  const Expected<Checkpoint> checkpoint =
      Checkpoint::Open(Written(dir, file({2, 0, 3})), std::nullopt);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->layers().size(), 2u);
  EXPECT_EQ(checkpoint->layers()[0].d_ff, 2u);
  EXPECT_EQ(checkpoint->layers()[1].layer, 2u);
  EXPECT_EQ(checkpoint->layers()[1].d_ff, 3u);
  EXPECT_THAT(checkpoint->warnings(), testing::IsEmpty());  // layer 1 has none on purpose
  EXPECT_THAT(OpenError(Written(dir, file({2, 0, 4}))),
              AllOf(HasSubstr("blk.2.ffn_gate.weight"), HasSubstr("[3, 4], expected [4, 4]"),
                    HasSubstr("llama.feed_forward_length 4")));
  EXPECT_THAT(OpenError(Written(dir, file({2, 0}))), HasSubstr("layer 2"));
}

}  // namespace
}  // namespace sluice
