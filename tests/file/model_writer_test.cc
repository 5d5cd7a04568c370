// A file appears whole or not at all, and only with what was described.
#include "src/file/model_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <optional>
#include <string>
#include <vector>

#include "src/file/safetensors.h"
#include "tests/file/sample_model.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// While it lives, no file of this process grows beyond `bytes`, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &saved_);
    const rlimit limit = {bytes, saved_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &saved_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit saved_ = {};
  sighandler_t handler_ = nullptr;
};

class ModelWriterTest : public testing::Test {
 protected:
  Expected<ModelWriter> Create() { return ModelWriter::Create(path_, "llama", sample_.layers); }
  const PackedMatrixView& View(size_t index, Matrix m) {
    return sample_.blocks[index].view.matrices[m];
  }

  test::TempDir dir_;
  std::string path_ = dir_.File("model.safetensors");
  test::Random random_;
  test::SampleModel sample_ = test::MixedModel(random_);
};

TEST_F(ModelWriterTest, NothingRemainsWithoutFinish) {
  for (const bool existing : {false, true}) {
    if (existing) test::WriteBytes(path_, "precious");
    {
      auto writer = Create();
      ASSERT_TRUE(writer) << writer.error().message;
      ASSERT_TRUE(writer->Add(3, Matrix::kGate, View(0, Matrix::kGate)));
    }
    if (existing) {
      EXPECT_EQ(test::ReadBytes(path_), "precious");
      EXPECT_THAT(dir_.List(), ElementsAre("model.safetensors"));
    } else {
      EXPECT_THAT(dir_.List(), IsEmpty());
    }
  }
}

TEST_F(ModelWriterTest, AMissingMatrixIsAnErrorOfFinish) {
  test::WriteBytes(path_, "precious");
  {
    auto writer = Create();
    ASSERT_TRUE(writer);
    for (const Matrix m : kMatrices) ASSERT_TRUE(writer->Add(3, m, View(0, m)));
    ASSERT_TRUE(writer->Add(7, Matrix::kUp, View(1, Matrix::kUp)));
    const Status status = writer->Finish();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr(path_ + ": layer 7, down is missing"));
  }
  EXPECT_EQ(test::ReadBytes(path_), "precious");
  EXPECT_THAT(dir_.List(), ElementsAre("model.safetensors"));
}

TEST_F(ModelWriterTest, ReplacesAnExistingFileOnlyWhenFinished) {
  test::WriteBytes(path_, "old");
  auto writer = Create();
  ASSERT_TRUE(writer);
  for (size_t i = 0; i < 2; ++i) {
    for (const Matrix m : kMatrices) {
      if (!sample_.layers[i].matrices[m]) continue;
      ASSERT_TRUE(writer->Add(sample_.layers[i].layer, m, View(i, m)));
      EXPECT_EQ(test::ReadBytes(path_), "old");
    }
  }
  ASSERT_TRUE(writer->Finish());
  EXPECT_TRUE(Model::Open(path_));
  EXPECT_THAT(dir_.List(), ElementsAre("model.safetensors"));
}

TEST_F(ModelWriterTest, AddTakesOnlyWhatIsNextAndAsDescribed) {
  auto writer = Create();
  ASSERT_TRUE(writer);
  const auto refusal = [&](size_t layer, Matrix m, const PackedMatrixView& view) {
    const Status status = writer->Add(layer, m, view);
    return status ? "accepted" : status.error().message;
  };
  EXPECT_THAT(refusal(3, Matrix::kUp, View(0, Matrix::kUp)),
              HasSubstr("layer 3, up given, layer 3, gate is next"));
  EXPECT_THAT(refusal(7, Matrix::kGate, View(0, Matrix::kGate)), HasSubstr("layer 7, gate given"));
  EXPECT_THAT(refusal(3, Matrix::kGate, View(0, Matrix::kUp)),
              HasSubstr("layer 3, gate is qc8w [17, 33] with bias, described as qb4w:32 [17, 33]"));
  PackedMatrixView no_bias = View(0, Matrix::kGate);
  no_bias.bias = nullptr;
  EXPECT_THAT(refusal(3, Matrix::kGate, no_bias), HasSubstr("without bias, described as"));
  // A refusal costs nothing: the right one is still taken.
  for (const Matrix m : kMatrices) EXPECT_EQ(refusal(3, m, View(0, m)), "accepted");
  EXPECT_EQ(refusal(7, Matrix::kUp, View(1, Matrix::kUp)), "accepted");
  EXPECT_EQ(refusal(7, Matrix::kDown, View(1, Matrix::kDown)), "accepted");
  EXPECT_THAT(refusal(7, Matrix::kDown, View(1, Matrix::kDown)),
              HasSubstr("all matrices are written"));
  EXPECT_TRUE(writer->Finish());
  const auto model = Model::Open(path_);
  ASSERT_TRUE(model);
  EXPECT_TRUE(model->Verify());
}

// What Verify would refuse is not written.
TEST_F(ModelWriterTest, AddRefusesValuesThatAreNoWeights) {
  auto writer = Create();
  ASSERT_TRUE(writer);
  PackedMatrixView bad = View(0, Matrix::kGate);
  std::vector<std::byte> scales(bad.scales, bad.scales + bad.layout.scale_bytes());
  scales[0] = std::byte{0xC0};
  scales[1] = std::byte{0x7F};
  bad.scales = scales.data();
  const Status status = writer->Add(3, Matrix::kGate, bad);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              HasSubstr(path_ + ": tensor \"layers.3.gate.scale\": the scale of row 0, block 0"));
}

TEST_F(ModelWriterTest, DescriptionsThatMakeNoModelAreRefusedAtOnce) {
  const auto refusal = [&](auto edit) -> std::string {
    std::vector<LayerInfo> layers = sample_.layers;
    edit(layers);
    const auto writer = ModelWriter::Create(path_, "llama", layers);
    return writer ? "accepted" : writer.error().message;
  };
  using Layers = std::vector<LayerInfo>;
  EXPECT_THAT(refusal([](Layers& l) { l.clear(); }), HasSubstr("has no layers"));
  EXPECT_THAT(refusal([](Layers& l) { std::swap(l[0], l[1]); }), HasSubstr("comes after"));
  EXPECT_THAT(refusal([](Layers& l) { l[1] = l[0]; }), HasSubstr("comes after"));
  EXPECT_THAT(refusal([](Layers& l) { l[0].gated = false; }), HasSubstr("ungated"));
  EXPECT_THAT(refusal([](Layers& l) { l[0].matrices[Matrix::kUp].reset(); }),
              HasSubstr("layer 3: up is missing"));
  EXPECT_THAT(refusal([](Layers& l) { l[0].d_ff = 18; }),
              HasSubstr("gate is [17, 33], the block needs [18, 33]"));
  EXPECT_THAT(refusal([](Layers& l) { l[0].matrices[Matrix::kUp]->cols = 200'000; }),
              HasSubstr("131072"));
  EXPECT_THAT(refusal([](Layers& l) { l[0].matrices[Matrix::kUp]->name.clear(); }),
              HasSubstr("up has no name"));
  EXPECT_THAT(refusal([](Layers& l) { l[0].input_activations = ActivationFormat::kFloat; }),
              HasSubstr("activations"));
  EXPECT_THAT(refusal([](Layers& l) { l[0].matrices[Matrix::kUp]->name.assign(40 << 20, 'x'); }),
              HasSubstr("at most 33554432 are read"));
  EXPECT_THAT(dir_.List(), IsEmpty());
}

// GGUF does not say that names are UTF-8.
TEST_F(ModelWriterTest, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  sample_.layers[0].matrices[Matrix::kGate]->name = "a\xFFz";
  ASSERT_TRUE(sample_.Write(path_));
  const auto model = Model::Open(path_);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->layers()[0].matrices[Matrix::kGate]->name, "a\uFFFDz");
}

TEST_F(ModelWriterTest, AFullDiskLeavesTheOldFileAndNothingElse) {
  ASSERT_TRUE(sample_.Write(path_));
  const uint64_t size = test::ReadBytes(path_).size();
  test::WriteBytes(path_, "precious");
  for (const uint64_t limit : {uint64_t{0}, uint64_t{1}, uint64_t{64}, size / 2, size - 1}) {
    std::optional<Status> status;
    {
      const FileSizeLimit full(limit);
      status = sample_.Write(path_);
    }
    ASSERT_FALSE(*status) << limit;
    EXPECT_EQ(status->error().code, ErrorCode::kIo);
    EXPECT_THAT(status->error().message, HasSubstr(path_));
    EXPECT_EQ(test::ReadBytes(path_), "precious");
    EXPECT_THAT(dir_.List(), ElementsAre("model.safetensors"));
  }
  const FileSizeLimit enough(size);
  EXPECT_TRUE(sample_.Write(path_));
}

TEST_F(ModelWriterTest, APlaceThatCannotBeWrittenIsAnError) {
  path_ = dir_.File("no/such/folder/model.safetensors");
  EXPECT_THAT(Create().error().message, HasSubstr(path_ + ": cannot create: No such file"));
  path_ = dir_.path();
  EXPECT_THAT(Create().error().message, HasSubstr(path_ + ": is a directory"));
  EXPECT_THAT(dir_.List(), IsEmpty());
}

}  // namespace
}  // namespace sluice
