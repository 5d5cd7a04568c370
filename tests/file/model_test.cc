// What is written is what is read: every format, awkward sizes, every plane byte for byte.
#include "sluice/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/ffn/ffn_impl.h"
#include "src/file/model_impl.h"
#include "src/file/model_planes.h"
#include "tests/file/sample_model.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::HasSubstr;

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// `model` has the layers of `sample`, every plane aligned and byte for byte the same.
void ExpectSame(const Model& model, const test::SampleModel& sample) {
  EXPECT_EQ(model.layers(), sample.layers);
  for (size_t i = 0; i < sample.layers.size(); ++i) {
    const BlockView& written = sample.blocks[i].view;
    const auto read = model.impl().Block(sample.layers[i].layer);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(CheckBlock(*read));
    EXPECT_EQ(read->activation, written.activation);
    EXPECT_EQ(read->gated, written.gated);
    for (const Matrix m : kMatrices) {
      EXPECT_EQ(read->matrices[m].layout, written.matrices[m].layout);
      for (const Plane plane : kPlanes) {
        const auto bytes = PlaneBytes(read->matrices[m], plane);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % 64, 0u);
        EXPECT_EQ(bytes.size() % 64, 0u);
        if (m == Matrix::kGate && !written.gated) {
          EXPECT_EQ(bytes.data(), nullptr);
        } else {
          EXPECT_TRUE(TextOf(bytes) == TextOf(PlaneBytes(written.matrices[m], plane)))
              << Name(m) << " " << Name(plane);
        }
      }
    }
  }
}

class ModelTest : public testing::Test {
 protected:
  Model WriteAndOpen(const test::SampleModel& sample) {
    const Status written = sample.Write(path_);
    EXPECT_TRUE(written) << written.error().message;
    return Model::Open(path_).value();
  }

  test::TempDir dir_;
  std::string path_ = dir_.File("model.sluice.safetensors");
  test::Random random_;
};

TEST_F(ModelTest, EveryFormatAndAwkwardSizeComesBack) {
  constexpr size_t kSizes[] = {1, 15, 17, 31, 33, 172, 576};
  size_t turn = 0;
  for (const WeightFormat format : kWeightFormats) {
    test::SampleModel sample;
    for (const size_t size : kSizes) {
      const size_t d_ff = kSizes[(turn + 3) % std::size(kSizes)];
      sample.Add(turn,
                 test::MakeRandomBlock(random_, size, d_ff,
                                       {.formats = test::AllOf(format),
                                        .activation = kActivations[turn % kActivations.size()],
                                        .gated = turn % 3 != 0,
                                        .biases = turn % 2 != 0}));
      ++turn;
    }
    SCOPED_TRACE(Name(format));
    const Model model = WriteAndOpen(sample);
    ExpectSame(model, sample);
    const Status verified = model.Verify();
    EXPECT_TRUE(verified) << verified.error().message;
  }
}

TEST_F(ModelTest, EachMatrixKeepsItsOwnFormat) {
  test::SampleModel sample = test::MixedModel(random_);
  sample.layers[0].matrices[Matrix::kGate]->requested = {WeightType::kInt4, 128};
  const Model model = WriteAndOpen(sample);
  ExpectSame(model, sample);
  EXPECT_TRUE(model.Verify());
  EXPECT_EQ(model.path(), path_);
  EXPECT_EQ(model.architecture(), "llama");
  EXPECT_EQ(model.file_bytes(), std::filesystem::file_size(path_));
  // qb4w:32, [17, 33] padded to [32, 64]: 1024 bytes of nibbles and 64 bf16 scales.
  EXPECT_EQ(model.layers()[0].matrices[Matrix::kGate]->bytes, 1024u + 128u);
  EXPECT_DOUBLE_EQ(model.layers()[0].matrices[Matrix::kGate]->bits_per_weight(),
                   8.0 * 1152 / (17 * 33));
}

TEST_F(ModelTest, NamesMayBeAnyText) {
  test::SampleModel sample = test::MixedModel(random_);
  sample.layers[0].matrices[Matrix::kUp]->name = "größe \"quoted\" \\ \n\x01 名前";
  ExpectSame(WriteAndOpen(sample), sample);
}

TEST_F(ModelTest, AMissingLayerIsAnErrorThatSaysWhatThereIs) {
  const Model model = WriteAndOpen(test::MixedModel(random_));
  for (const size_t layer : {size_t{0}, size_t{4}, size_t{8}, SIZE_MAX}) {
    const auto ffn = model.Layer(layer);
    ASSERT_FALSE(ffn);
    EXPECT_EQ(ffn.error().code, ErrorCode::kNotFound);
    EXPECT_THAT(ffn.error().message, HasSubstr(path_));
    EXPECT_THAT(ffn.error().message,
                HasSubstr(std::format("no layer {}; the file has 2, from 3 to 7", layer)));
  }
  const auto ffn = model.Layer(3, {.backend = "none"});
  ASSERT_FALSE(ffn);
  EXPECT_THAT(ffn.error().message, HasSubstr(path_ + ": layer 3: "));
}

// One block's result for two random tokens.
std::vector<float> RunTokens(const Ffn& ffn, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  Workspace workspace = ffn.Plan(2).value();
  const size_t d = ffn.d_model();
  const Status status = ffn.Forward({x.data(), 2, d}, {y.data(), 2, d}, workspace);
  EXPECT_TRUE(status) << status.error().message;
  return y;
}

TEST_F(ModelTest, ABlockFromTheFileComputesWhatItDidInMemory) {
  const test::SampleModel sample = test::MixedModel(random_);
  const Model model = WriteAndOpen(sample);
  for (size_t i = 0; i < sample.layers.size(); ++i) {
    const Ffn from_memory = CreateFfn(sample.blocks[i].view, {}).value();
    const Ffn from_file = model.Layer(sample.layers[i].layer).value();
    const std::vector<float> x = test::RandomVector(random_, 2 * from_file.d_model());
    const std::vector<float> a = RunTokens(from_memory, x);
    const std::vector<float> b = RunTokens(from_file, x);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
  }
}

TEST_F(ModelTest, ManyThreadsMayReadOneModel) {
  const Model model = WriteAndOpen(test::MixedModel(random_));
  const std::vector<float> x = test::RandomVector(random_, 2 * 33);
  const std::vector<float> expected = RunTokens(model.Layer(3).value(), x);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(RunTokens(model.Layer(3).value(), x), expected);
        EXPECT_TRUE(model.Verify());
        EXPECT_TRUE(Model::Open(path_));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ModelTest, AMovedModelKeepsItsMemory) {
  const test::SampleModel sample = test::MixedModel(random_);
  Model first = WriteAndOpen(sample);
  const Ffn ffn = first.Layer(7).value();
  const std::vector<float> x = test::RandomVector(random_, 2 * 33);
  const std::vector<float> expected = RunTokens(ffn, x);
  const Model second = std::move(first);
  ExpectSame(second, sample);
  EXPECT_EQ(RunTokens(ffn, x), expected);
}

}  // namespace
}  // namespace sluice
