#include "quant/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "quant/checkpoint/block_formats.h"
#include "tests/quant/checkpoint/tiny_checkpoint.h"

namespace sluice {
namespace {

using test::BytesOf;
using test::GgufWriter;
using test::OpenError;
using test::SafetensorsBytes;
using test::TempDir;
using test::WriteTiny;
using testing::AllOf;
using testing::HasSubstr;

TEST(Checkpoint, ReadsHalfPrecision) {
  for (const char* dtype : {"BF16", "F16"}) {
    TempDir dir;
    SafetensorsBytes file;
    const std::string one =
        std::string_view(dtype) == "BF16" ? std::string("\x80\x3F", 2) : std::string("\x00\x3C", 2);
    std::string data;
    for (int i = 0; i < 6; ++i) data += one;
    for (const char* name : {"gate", "up"}) {
      file.Tensor(std::format("model.layers.0.mlp.{}_proj.weight", name), dtype, {3, 2}, data);
    }
    file.Tensor("model.layers.0.mlp.down_proj.weight", dtype, {2, 3}, data);
    WriteTiny(dir, file, R"({"model_type":"llama"})");
    const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.path(), std::nullopt);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->layers()[0].matrices[Matrix::kUp]->type, dtype);
    EXPECT_EQ(checkpoint->layers()[0].matrices[Matrix::kUp]->bytes, 12u);
    EXPECT_EQ(checkpoint->Load(0, Matrix::kUp)->weights, std::vector<float>(6, 1.0f));
  }
}

TEST(Checkpoint, ReadsQuantizedRows) {
  // Q8_0, two rows of two blocks; the scale of each block says which it is.
  std::string data;
  for (const uint16_t scale : {0x3C00, 0x4000, 0x4200, 0x4400}) {  // 1, 2, 3, 4
    data += BytesOf<uint16_t>(scale) + std::string(32, '\x05');
  }
  GgufWriter file;
  file.String("general.architecture", "llama");
  for (const char* name : {"gate", "up"}) {
    file.Tensor(std::format("blk.3.ffn_{}.weight", name), {2, 64}, test::kGgmlQ80, data);
  }
  file.F32("blk.3.ffn_down.weight", {64, 2}, std::vector<float>(128, 1.0f));
  TempDir dir;
  test::WriteBytes(dir.File("m.gguf"), file.Build());
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.File("m.gguf"), std::nullopt);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->layers()[0].layer, 3u);
  EXPECT_EQ(checkpoint->layers()[0].matrices[Matrix::kGate]->type, "Q8_0");
  EXPECT_EQ(checkpoint->layers()[0].matrices[Matrix::kGate]->bytes, 4u * 34);
  const Expected<LinearWeights> gate = checkpoint->Load(3, Matrix::kGate);
  ASSERT_TRUE(gate) << gate.error().message;
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(gate->weights[i], 5.0f * static_cast<float>(i / 32 + 1)) << i;
  }
}

// Matrices larger than the piece that is read at once, in both orientations.
TEST(Checkpoint, ReadsMatricesPieceByPiece) {
  constexpr size_t kModel = 1024, kFf = 1500;
  const auto value = [](size_t out, size_t in) { return static_cast<float>(out * 2048 + in); };
  TempDir dir;
  SafetensorsBytes file;
  std::vector<float> up;    // [in, out]
  std::vector<float> down;  // [in, out]
  for (size_t i = 0; i < kModel; ++i) {
    for (size_t o = 0; o < kFf; ++o) up.push_back(value(o, i));
  }
  for (size_t i = 0; i < kFf; ++i) {
    for (size_t o = 0; o < kModel; ++o) down.push_back(value(o, i));
  }
  file.F32("h.0.mlp.c_fc.weight", {kModel, kFf}, up);
  file.F32("h.0.mlp.c_fc.bias", {kFf}, std::vector<float>(kFf, 1));
  file.F32("h.0.mlp.c_proj.weight", {kFf, kModel}, down);
  file.F32("h.0.mlp.c_proj.bias", {kModel}, std::vector<float>(kModel, 2));
  WriteTiny(dir, file, R"({"model_type":"gpt2"})");
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.path(), std::nullopt);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  for (const Matrix m : {Matrix::kUp, Matrix::kDown}) {
    const Expected<LinearWeights> w = checkpoint->Load(0, m);
    ASSERT_TRUE(w) << w.error().message;
    for (size_t o = 0; o < w->rows; ++o) {
      for (size_t i = 0; i < w->cols; ++i) {
        ASSERT_EQ(w->weights[o * w->cols + i], value(o, i)) << o << " " << i;
      }
    }
  }
}

// H19: weights that are no numbers, by tensor and index in the file's own shape.
TEST(Checkpoint, H19NonFiniteWeightsAreRefused) {
  const float bad[] = {std::bit_cast<float>(0x7F800001u), std::bit_cast<float>(0xFFFFFFFFu),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const float v : bad) {
    TempDir dir;
    SafetensorsBytes file;
    const std::vector<float> clean = {1, 2, 3, 4, 5, 6};
    std::vector<float> dirty = clean;
    dirty[5] = v;
    file.F32("model.layers.0.mlp.gate_proj.weight", {3, 2}, clean);
    file.F32("model.layers.0.mlp.up_proj.weight", {3, 2}, dirty);
    file.F32("model.layers.0.mlp.down_proj.weight", {2, 3}, clean);
    WriteTiny(dir, file, R"({"model_type":"llama"})");
    const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.path(), std::nullopt);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->Load(0, Matrix::kGate));
    const Expected<LinearWeights> up = checkpoint->Load(0, Matrix::kUp);
    ASSERT_FALSE(up);
    EXPECT_THAT(up.error().message,
                AllOf(HasSubstr("model.layers.0.mlp.up_proj.weight"), HasSubstr("at [2, 1]"),
                      HasSubstr(std::isnan(v) ? "nan" : "inf")));
    EXPECT_FALSE(checkpoint->Load(0));
  }
}

TEST(Checkpoint, H19AnInfiniteScaleAndABiasAreRefusedToo) {
  TempDir dir;
  GgufWriter file;
  file.String("general.architecture", "bert");
  file.Tensor("blk.0.ffn_up.weight", {1, 64}, test::kGgmlQ80,
              std::string(34, '\0') + BytesOf<uint16_t>(0x7C00) + std::string(32, '\1'));
  file.F32("blk.0.ffn_up.bias", {1}, {0});
  file.F32("blk.0.ffn_down.weight", {64, 1}, std::vector<float>(64, 0.0f));
  std::vector<float> bias(64, 0.0f);
  bias[7] = std::nanf("");
  file.F32("blk.0.ffn_down.bias", {64}, bias);
  test::WriteBytes(dir.File("m.gguf"), file.Build());
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.File("m.gguf"), std::nullopt);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_THAT(checkpoint->Load(0, Matrix::kUp).error().message,
              AllOf(HasSubstr("\"blk.0.ffn_up.weight\""), HasSubstr("[0, 32]")));
  EXPECT_THAT(checkpoint->Load(0, Matrix::kDown).error().message,
              AllOf(HasSubstr("\"blk.0.ffn_down.bias\""), HasSubstr("[7]")));
}

TEST(Checkpoint, LayersAndMatricesThatAreNotThere) {
  TempDir dir;
  GgufWriter file;
  file.String("general.architecture", "gpt2");
  test::AddTinyLayers(file, "blk.", {{"", "ffn_up", "ffn_down"}}, /*biases=*/true);
  test::WriteBytes(dir.File("m.gguf"), file.Build());
  Expected<Checkpoint> checkpoint = Checkpoint::Open(dir.File("m.gguf"), std::nullopt);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_THAT(checkpoint->Load(2).error().message, HasSubstr("no layer 2"));
  EXPECT_THAT(checkpoint->Load(0, Matrix::kGate).error().message, HasSubstr("has no gate"));
  // A moved checkpoint still reads.
  const Checkpoint moved = *std::move(checkpoint);
  test::ExpectTinyLayer(moved, 1, false, true);
}

TEST(Checkpoint, CountsLayersAgainstTheConfiguration) {
  TempDir dir;
  WriteTiny(dir, test::TinyLlama(), R"({"model_type":"llama","num_hidden_layers":3})");
  const Expected<Checkpoint> fewer = Checkpoint::Open(dir.path(), std::nullopt);
  ASSERT_TRUE(fewer) << fewer.error().message;
  EXPECT_THAT(fewer->warnings(), testing::ElementsAre(AllOf(HasSubstr("num_hidden_layers is 3"),
                                                            HasSubstr("only 2 of them"))));
  WriteTiny(dir, test::TinyLlama(), R"({"model_type":"llama","num_hidden_layers":1})");
  EXPECT_THAT(OpenError(dir.path()),
              AllOf(HasSubstr("model.layers.1.mlp.up_proj"), HasSubstr("num_hidden_layers is 1")));
}

}  // namespace
}  // namespace sluice
