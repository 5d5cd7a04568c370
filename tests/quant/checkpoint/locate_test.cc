#include "quant/checkpoint/locate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "quant/checkpoint/checkpoint.h"
#include "tests/quant/checkpoint/tiny_checkpoint.h"

namespace sluice {
namespace {

using test::AddTiny;
using test::ExpectTinyLayer;
using test::kTinyLlamaConfig;
using test::OpenError;
using test::SafetensorsBytes;
using test::TempDir;
using test::WriteBytes;
using testing::AllOf;
using testing::HasSubstr;

// Layer 0 in one shard, layer 1 in the other, as save_pretrained would.
struct ShardedLlama {
  TempDir dir;

  ShardedLlama() {
    std::string map;
    for (size_t layer = 0; layer < 2; ++layer) {
      const std::string shard = std::format("model-0000{}-of-00002.safetensors", layer + 1);
      SafetensorsBytes file;
      for (const Matrix m : kMatrices) {
        const std::string base =
            std::format("model.layers.{}.{}", layer, test::kTinyProjections[m]);
        AddTiny(file, base, layer, m);
        map += std::format("{}\"{}.weight\":\"{}\"", map.empty() ? "" : ",", base, shard);
      }
      WriteBytes(dir.File(shard), file.Build());
    }
    WriteBytes(index(), R"({"metadata":{"total_size":1},"weight_map":{)" + map + "}}");
    WriteBytes(dir.File("config.json"), kTinyLlamaConfig);
  }
  std::string index() const { return dir.File("model.safetensors.index.json"); }
};

void ExpectTinyLlama(const std::string& path, const std::optional<std::string>& config = {}) {
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(path, config);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->path(), path);
  ASSERT_EQ(checkpoint->layers().size(), 2u);
  for (size_t layer = 0; layer < 2; ++layer) ExpectTinyLayer(*checkpoint, layer, true, false);
}

TEST(Locate, FolderFileIndexAndConfigElsewhere) {
  TempDir dir;
  test::WriteTiny(dir, test::TinyLlama(), kTinyLlamaConfig);
  ExpectTinyLlama(dir.path());
  ExpectTinyLlama(dir.File("model.safetensors"));
  TempDir elsewhere;
  std::filesystem::rename(dir.File("config.json"), elsewhere.File("other-name.json"));
  ExpectTinyLlama(dir.path(), elsewhere.File("other-name.json"));
  ExpectTinyLlama(dir.File("model.safetensors"), elsewhere.File("other-name.json"));
  // A single file of any name is the folder's checkpoint.
  std::filesystem::rename(dir.File("model.safetensors"), dir.File("mine.safetensors"));
  ExpectTinyLlama(dir.path(), elsewhere.File("other-name.json"));

  const ShardedLlama sharded;
  ExpectTinyLlama(sharded.dir.path());
  ExpectTinyLlama(sharded.index());
}

TEST(Locate, WithoutAConfigurationSaysWhatWasLookedFor) {
  TempDir dir;
  WriteBytes(dir.File("model.safetensors"), test::TinyLlama().Build());
  for (const std::string& path : {dir.path(), dir.File("model.safetensors")}) {
    EXPECT_THAT(OpenError(path), AllOf(HasSubstr(dir.File("config.json")),
                                       HasSubstr(dir.File("params.json")), HasSubstr("--config")));
  }
  EXPECT_THAT(OpenError(dir.path(), dir.File("none.json")), HasSubstr(dir.File("none.json")));
}

TEST(Locate, MistralFoldersHaveBothKinds) {
  TempDir dir;
  SafetensorsBytes consolidated;
  test::AddTinyLayers(consolidated, "layers.",
                      {{"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"}});
  WriteBytes(dir.File("consolidated.safetensors"), consolidated.Build());
  WriteBytes(dir.File("params.json"), R"({"dim":4,"n_layers":2,"hidden_dim":6})");
  test::WriteTiny(dir, test::TinyLlama(),
                  R"({"model_type":"mistral","hidden_size":4,"intermediate_size":6})");
  ExpectTinyLlama(dir.path());
  ExpectTinyLlama(dir.File("consolidated.safetensors"));
  // Each with its own configuration: a change to one does not reach the other.
  WriteBytes(dir.File("params.json"), R"({"dim":4,"n_layers":2,"hidden_dim":7})");
  ExpectTinyLlama(dir.path());
  EXPECT_THAT(OpenError(dir.File("consolidated.safetensors")), HasSubstr("hidden_dim 7"));
}

TEST(Locate, FoldersWithoutOneCheckpoint) {
  TempDir dir;
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("no weights in this folder"));
  WriteBytes(dir.File("pytorch_model.bin"), "x");
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("pytorch_model.bin is a PyTorch pickle"));
  WriteBytes(dir.File("b.safetensors"), "x");
  WriteBytes(dir.File("a.safetensors"), "x");
  EXPECT_THAT(OpenError(dir.path()), HasSubstr("a.safetensors, b.safetensors"));
  EXPECT_THAT(OpenError(dir.File("none.gguf")), HasSubstr("no such file"));
  EXPECT_THAT(OpenError(dir.File("pytorch_model.bin")), HasSubstr("not a checkpoint"));
}

// What is there but cannot be reached is not said to be missing. (A link to itself stands for a
// folder without permission, which root does not meet.)
TEST(Locate, WhatCannotBeReachedIsNotCalledMissing) {
  TempDir dir;
  std::filesystem::create_symlink("loop", dir.File("loop"));
  EXPECT_THAT(OpenError(dir.File("loop")),
              AllOf(HasSubstr("symbolic links"), testing::Not(HasSubstr("no such file"))));
  EXPECT_THAT(OpenError(dir.File(std::string(300, 'x'))), HasSubstr("name too long"));
  EXPECT_THAT(OpenError(""), HasSubstr("name is empty"));
}

TEST(Locate, GgufTakesNoConfigAndNeedsNoSuffix) {
  TempDir dir;
  test::GgufWriter file;
  file.String("general.architecture", "llama");
  test::AddTinyLayers(file, "blk.", {{"ffn_gate", "ffn_up", "ffn_down"}});
  WriteBytes(dir.File("blob"), file.Build());
  ExpectTinyLlama(dir.File("blob"));
  WriteBytes(dir.File("config.json"), kTinyLlamaConfig);
  EXPECT_THAT(OpenError(dir.File("blob"), dir.File("config.json")), HasSubstr("--config"));
}

// H17.
TEST(Locate, H17EveryMissingShardIsListedWithItsTensors) {
  const ShardedLlama sharded;
  const std::string first = sharded.dir.File("model-00001-of-00002.safetensors");
  const std::string second = sharded.dir.File("model-00002-of-00002.safetensors");
  std::filesystem::remove(second);
  for (const std::string& path : {sharded.dir.path(), sharded.index()}) {
    const std::string error = OpenError(path);
    EXPECT_THAT(error, AllOf(HasSubstr("1 of 2 shards missing"), HasSubstr(second)));
    for (const Matrix m : kMatrices) {
      EXPECT_THAT(error, HasSubstr("model.layers.1." + test::kTinyProjections[m] + ".weight"));
    }
    EXPECT_THAT(error, testing::Not(HasSubstr("model.layers.0.")));
  }
  std::filesystem::remove(first);
  EXPECT_THAT(OpenError(sharded.dir.path()),
              AllOf(HasSubstr("2 of 2 shards missing"), HasSubstr(first), HasSubstr(second),
                    HasSubstr("model.layers.0.mlp.down_proj.weight"),
                    HasSubstr("model.layers.1.mlp.down_proj.weight")));
}

TEST(Locate, AnIndexIsNotTrusted) {
  const ShardedLlama sharded;
  const auto index = [&](std::string_view map) {
    WriteBytes(sharded.index(), std::format(R"({{"weight_map":{}}})", map));
    return OpenError(sharded.index());
  };
  // A tensor that its shard does not hold.
  EXPECT_THAT(index(R"({"model.layers.0.mlp.up_proj.weight":"model-00002-of-00002.safetensors"})"),
              AllOf(HasSubstr("model.layers.0.mlp.up_proj.weight"),
                    HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("does not hold it")));
  for (const char* shard :
       {R"("../x.safetensors")", R"("/etc/passwd")", R"("")", "3", "null", R"("a\u0000b")", "[]"}) {
    EXPECT_THAT(index(std::format(R"({{"t":{}}})", shard)),
                AllOf(HasSubstr("\"t\""), HasSubstr("not a file name"),
                      testing::Not(HasSubstr("\\\""))))  // quoted once
        << shard;
  }
  for (const char* map : {"{}", "[]", "null", "3"}) {
    EXPECT_THAT(index(map), HasSubstr("weight_map")) << map;
  }
}

}  // namespace
}  // namespace sluice
