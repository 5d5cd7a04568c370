// The factors of a rescaled layer in the file: written, read, and every fault named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "sluice/model.h"
#include "src/base/half.h"
#include "src/file/model_impl.h"
#include "tests/file/forged_model.h"
#include "tests/file/sample_model.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kTensor[] = "layers.2.rescale";

class RescaleFile : public testing::Test {
 protected:
  RescaleFile() { EXPECT_TRUE(sample_.Write(path_)); }

  // What Open, or else Verify, says of the file after `edit`.
  std::string Fault(const std::function<void(test::ForgedModel&)>& edit) {
    test::ForgedModel forged(path_);
    edit(forged);
    const std::string path = dir_.File("forged.safetensors");
    forged.Write(path);
    const auto model = Model::Open(path);
    const Status status = model ? model->Verify() : Status(std::unexpected(model.error()));
    if (status) return "verified";
    EXPECT_THAT(status.error().message, HasSubstr(path));
    return status.error().message;
  }

  // The same for one value of the tensor, the checksum made right if `sealed`.
  std::string FaultOf(size_t index, float value, bool sealed = true) {
    return Fault([=](test::ForgedModel& forged) {
      const Bf16 stored = ToBf16(value);
      std::memcpy(forged.bytes(kTensor).data() + 2 * index, &stored, 2);
      if (!sealed) return;
      forged.description["layers"][0]["rescale"]["checksum"] =
          test::ChecksumOf(forged.bytes(kTensor));
    });
  }

  test::TempDir dir_;
  std::string path_ = dir_.File("model.safetensors");
  test::Random random_;
  test::SampleModel sample_ = test::RescaledModel(random_);
};

TEST_F(RescaleFile, WhatIsWrittenIsRead) {
  const Model model = Model::Open(path_).value();
  EXPECT_TRUE(model.Verify());
  EXPECT_EQ(model.layers(), sample_.layers);
  EXPECT_EQ(model.impl().Rescale(2).value(), sample_.factors[0]);
  EXPECT_THAT(model.impl().Rescale(5).value(), IsEmpty());
  EXPECT_THAT(model.impl().Rescale(3).error().message, HasSubstr("there is no layer 3"));
}

// It is for those who compare matrices; the block itself is made of the others.
TEST_F(RescaleFile, ForwardDoesNotLookAtIt) {
  sample_.layers[0].rescaled = false;
  sample_.factors[0].clear();
  const std::string plain = dir_.File("plain.safetensors");
  ASSERT_TRUE(sample_.Write(plain));
  const Model with = Model::Open(path_).value(), without = Model::Open(plain).value();
  std::vector<float> x(40, 0.5f);
  std::vector<std::vector<float>> outputs;
  for (const Model* model : {&with, &without}) {
    const Ffn ffn = model->Layer(2).value();
    Workspace workspace = ffn.Plan(1).value();
    outputs.emplace_back(40);
    EXPECT_TRUE(ffn.Forward({x.data(), 1, 40}, {outputs.back().data(), 1, 40}, workspace));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_F(RescaleFile, AFactorThatIsNoPositiveNumberIsNamed) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::string tensor = "tensor \"layers.2.rescale\": ";
  const std::string expected = ", expected a positive number";
  EXPECT_THAT(FaultOf(3, 0), HasSubstr(tensor + "the factor of neuron 3 is 0" + expected));
  EXPECT_THAT(FaultOf(0, -2), HasSubstr(tensor + "the factor of neuron 0 is -2" + expected));
  EXPECT_THAT(FaultOf(4, kInf), HasSubstr(tensor + "the factor of neuron 4 is inf" + expected));
  EXPECT_THAT(FaultOf(1, std::numeric_limits<float>::quiet_NaN()), HasSubstr("neuron 1 is nan"));
  EXPECT_THAT(FaultOf(5, 1), HasSubstr(tensor + "value 5 is padding, but not 0"));
  EXPECT_EQ(FaultOf(3, 7), "verified");
}

TEST_F(RescaleFile, ADamagedFactorIsFound) {
  EXPECT_THAT(FaultOf(3, 7, /*sealed=*/false),
              HasSubstr("tensor \"layers.2.rescale\": its checksum is"));
}

TEST_F(RescaleFile, DescriptionsThatDoNotFitAreNamed) {
  using Forged = test::ForgedModel;
  EXPECT_THAT(Fault([](Forged& f) { f.tensor(kTensor).name = "x"; }),
              HasSubstr("tensor \"layers.2.rescale\" is missing"));
  EXPECT_THAT(Fault([](Forged& f) { f.tensor(kTensor).dtype = "F16"; }),
              HasSubstr("\"layers.2.rescale\" is \"F16\" [32], its layer takes BF16 [32]"));
  EXPECT_THAT(Fault([](Forged& f) { f.description["layers"][0].erase("rescale"); }),
              HasSubstr("tensor \"layers.2.rescale\" belongs to no layer"));
  EXPECT_THAT(Fault([](Forged& f) {
                f.description["layers"][1]["rescale"]["checksum"] = std::string(16, '0');
              }),
              HasSubstr("tensor \"layers.5.rescale\" is missing"));
  EXPECT_THAT(Fault([](Forged& f) { f.description["layers"][0]["rescale"] = 1; }),
              HasSubstr("layers[0].rescale is 1, expected an object"));
  EXPECT_THAT(Fault([](Forged& f) { f.description["layers"][0]["rescale"]["checksum"] = "z"; }),
              HasSubstr("expected 16 hexadecimal digits"));
}

TEST_F(RescaleFile, OnlyAGatedBlockCanBeRescaled) {
  test::SampleModel sample;
  const test::BlockOptions options = {.formats = test::AllOf({WeightType::kInt4, 32}),
                                      .gated = false};
  sample.Add(0, test::MakeRandomBlock(random_, 40, 3, options), {1, 1, 1});
  EXPECT_THAT(sample.Write(dir_.File("x")).error().message,
              HasSubstr("layer 0: it is rescaled, but a block without a gate is not linear in up"));
}

TEST_F(RescaleFile, TheWriterTakesOnlyWhatIsDescribed) {
  const auto refusal = [&](size_t layer, std::vector<float> factors, bool after_matrices = true) {
    auto writer = ModelWriter::Create(dir_.File("y"), "llama", sample_.layers).value();
    for (const Matrix m : kMatrices) {
      if (!after_matrices) break;
      EXPECT_TRUE(writer.Add(2, m, sample_.blocks[0].view.matrices[m]));
    }
    const Status status = writer.AddRescale(layer, factors);
    return status ? writer.Finish().error().message : status.error().message;
  };
  const std::vector<float>& good = sample_.factors[0];
  EXPECT_THAT(refusal(2, good, false), HasSubstr("layer 2, rescale given, layer 2, gate is next"));
  EXPECT_THAT(refusal(5, good), HasSubstr("layer 5, rescale given, layer 2, rescale is next"));
  EXPECT_THAT(refusal(2, {1, 1}), HasSubstr("2 factors given, the layer has 5 neurons"));
  EXPECT_THAT(refusal(2, {1, 1, 0, 1, 1}), HasSubstr("the factor of neuron 2 is 0"));
  EXPECT_THAT(refusal(2, {1, 1, 1, 1.001f, 1}), HasSubstr("is 1.001, no value of bf16"));
  EXPECT_THAT(refusal(2, good), HasSubstr("layer 5, gate is missing"));
}

}  // namespace
}  // namespace sluice
