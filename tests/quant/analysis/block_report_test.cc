// Reports from real files: a checkpoint and its packed model, both written here.
#include "quant/analysis/block_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <format>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quant/quantizer/quantizer.h"
#include "src/file/model_writer.h"
#include "src/file/safetensors.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kD = 40;
constexpr size_t kM = 72;
constexpr WeightFormat kF32 = {WeightType::kF32, 0};
constexpr WeightFormat kQ4 = {WeightType::kInt4, 32};
constexpr WeightFormat kQ8 = {WeightType::kInt8, 32};

struct Tensor {
  std::string name;
  std::vector<uint64_t> shape;
  std::vector<float> values;
};

class BlockReport : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::vector<Tensor>& tensors) {
    std::vector<SafetensorsTensor> descriptions;
    std::vector<std::span<const std::byte>> data;
    for (const Tensor& tensor : tensors) {
      descriptions.push_back({tensor.name, "F32", tensor.shape});
      data.push_back(std::as_bytes(std::span(tensor.values)));
    }
    const Status status = WriteSafetensors(path, descriptions, data);
    ASSERT_TRUE(status.has_value()) << status.error().message;
  }

  // A Llama of the feed-forward tensors only.
  Checkpoint MakeCheckpoint(size_t layers) {
    test::WriteBytes(dir_.File("config.json"),
                     std::format(R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama",
                       "hidden_act": "silu", "hidden_size": {}, "intermediate_size": {},
                       "num_hidden_layers": {}}})",
                                 kD, kM, layers));
    std::vector<Tensor> tensors;
    for (size_t n = 0; n < layers; ++n) {
      for (const Matrix m : kMatrices) {
        const bool down = m == Matrix::kDown;
        tensors.push_back({std::format("model.layers.{}.mlp.{}_proj.weight", n, Name(m)),
                           {down ? kD : kM, down ? kM : kD},
                           test::RandomVector(random_, kD * kM, down ? 0.12f : 0.16f)});
      }
    }
    Write(dir_.File("model.safetensors"), tensors);
    auto checkpoint = Checkpoint::Open(dir_.path(), std::nullopt);
    EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    return *std::move(checkpoint);
  }

  // Packs the layers of `checkpoint`, all matrices in one format, as `sluice quantize` does.
  // `change` may falsify a layer's description.
  Model MakeModel(
      const Checkpoint& checkpoint, WeightFormat format,
      const std::function<void(LayerInfo&)>& change = [](LayerInfo&) {}) {
    const auto activations = DefaultActivations(test::AllOf(format), true);
    std::vector<LayerInfo> layers;
    for (const SourceLayer& source : checkpoint.layers()) {
      LayerInfo info;
      info.layer = source.layer;
      info.d_model = source.d_model;
      info.d_ff = source.d_ff;
      info.activation = source.activation;
      info.gated = source.gated;
      info.input_activations = activations.input;
      info.hidden_activations = activations.hidden;
      for (const Matrix m : kMatrices) {
        const SourceMatrix& from = *source.matrices[m];
        info.matrices[m] = {from.name, format, format, from.rows, from.cols, 0, from.bias_name};
      }
      change(info);
      layers.push_back(info);
    }
    const std::string path = dir_.File("model.sluice.safetensors");
    auto writer = ModelWriter::Create(path, checkpoint.architecture(), layers);
    EXPECT_TRUE(writer.has_value()) << writer.error().message;
    for (const LayerInfo& info : layers) {
      for (const Matrix m : kMatrices) {
        const LinearWeights weights = *checkpoint.Load(info.layer, m);
        const auto packed = Pack(*QuantizeRtn(weights.view(), format, nullptr), weights.bias);
        const Status status = writer->Add(info.layer, m, packed->view());
        EXPECT_TRUE(status.has_value()) << status.error().message;
      }
    }
    const Status status = writer->Finish();
    EXPECT_TRUE(status.has_value()) << status.error().message;
    auto model = Model::Open(path);
    EXPECT_TRUE(model.has_value()) << model.error().message;
    return *std::move(model);
  }

  // Inputs for the layers named.
  Calibration MakeCalibration(const std::vector<size_t>& layers, size_t tokens = 6) {
    std::vector<Tensor> tensors;
    tensors.reserve(layers.size());
    for (const size_t n : layers) {
      tensors.push_back({std::format("model.layers.{}.mlp.input", n),
                         {tokens, kD},
                         test::RandomVector(random_, tokens * kD, 2)});
    }
    Write(dir_.File("calibration.safetensors"), tensors);
    return *Calibration::Open(dir_.File("calibration.safetensors"));
  }

  static ModelReport Build(const Checkpoint& checkpoint, const Model& model,
                           const Calibration& calibration, const ReportOptions& options = {}) {
    auto report = BuildReport(checkpoint, model, calibration, options);
    EXPECT_TRUE(report.has_value()) << report.error().message;
    return *std::move(report);
  }

  test::Random random_;
  test::TempDir dir_;
};

TEST_F(BlockReport, DescribesTheWholeModel) {
  const Checkpoint checkpoint = MakeCheckpoint(3);
  const Model model = MakeModel(checkpoint, kQ8);
  const Calibration calibration = MakeCalibration({0, 1, 2});
  std::vector<std::pair<size_t, size_t>> progress;
  ReportOptions options;
  options.progress = [&](size_t done, size_t all) { progress.emplace_back(done, all); };
  const ModelReport report = Build(checkpoint, model, calibration, options);
  EXPECT_EQ(report.model, checkpoint.path());
  EXPECT_EQ(report.file, model.path());
  EXPECT_EQ(report.calibration_source, dir_.File("calibration.safetensors"));
  EXPECT_EQ(report.calibration_tokens, 6u);
  EXPECT_THAT(report.cpu, ::testing::Not(IsEmpty()));
  EXPECT_THAT(report.backend, ::testing::StartsWith("highway"));
  EXPECT_THAT(report.warnings, IsEmpty());
  EXPECT_THAT(progress, ElementsAre(std::pair(1, 3), std::pair(2, 3), std::pair(3, 3)));

  ASSERT_EQ(report.layers.size(), 3u);
  double sum = 0;
  double largest = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < 3; ++i) {
    const LayerReport& layer = report.layers[i];
    EXPECT_EQ(layer.layer, i);
    EXPECT_EQ(layer.tokens, 6u);
    EXPECT_EQ(layer.input_activations, ActivationFormat::kBlock);
    for (const Matrix m : kMatrices) {
      const MatrixInfo& info = *model.layers()[i].matrices[m];
      const MatrixReport& matrix = *layer.matrices[m];
      EXPECT_EQ(matrix.format, kQ8);
      EXPECT_EQ(matrix.requested, kQ8);
      EXPECT_EQ(matrix.bits_per_weight, 8.0 * static_cast<double>(info.bytes) / (kD * kM));
      EXPECT_GT(matrix.bits_per_weight, 8.5);  // and padding
      EXPECT_GT(matrix.weight_relative_rmse, 1e-3);
      EXPECT_LT(matrix.weight_relative_rmse, 1e-2);
      bytes += info.bytes;
    }
    EXPECT_GT(layer.output.relative_l2, 1e-3);
    EXPECT_LT(layer.output.relative_l2, 3e-2);
    EXPECT_EQ(layer.attribution.all, layer.output.relative_l2);
    sum += layer.output.relative_l2;
    largest = std::max(largest, layer.output.relative_l2);
  }
  EXPECT_NEAR(report.totals.relative_l2_mean, sum / 3, 1e-15);
  EXPECT_EQ(report.totals.relative_l2_max, largest);
  EXPECT_EQ(report.totals.ffn_bytes, bytes);
  EXPECT_EQ(report.totals.bits_per_weight, 8.0 * static_cast<double>(bytes) / (9 * kD * kM));
}

TEST_F(BlockReport, FloatWeightsHaveNoError) {
  const Checkpoint checkpoint = MakeCheckpoint(1);
  const ModelReport report = Build(checkpoint, MakeModel(checkpoint, kF32), MakeCalibration({0}));
  EXPECT_LT(report.totals.relative_l2_max, 1e-6);
  EXPECT_EQ(report.layers[0].matrices[Matrix::kGate]->weight_relative_rmse, 0);
  EXPECT_EQ(report.layers[0].attribution.matrices[Matrix::kGate], 0);
}

// The contract makes the highway backend's figures those of the scalar reference.
TEST_F(BlockReport, BackendsAgree) {
  const Checkpoint checkpoint = MakeCheckpoint(2);
  const Model model = MakeModel(checkpoint, kQ4);
  const Calibration calibration = MakeCalibration({0, 1});
  auto pool = ThreadPool::Create(2);
  ASSERT_TRUE(pool.has_value());
  ReportOptions reference;
  reference.backend = "reference";
  ReportOptions highway;
  highway.pool = &*pool;
  ReportOptions xnnpack;
  xnnpack.backend = "xnnpack";
  const ModelReport a = Build(checkpoint, model, calibration, reference);
  const ModelReport b = Build(checkpoint, model, calibration, highway);
  const ModelReport c = Build(checkpoint, model, calibration, xnnpack);
  EXPECT_NEAR(a.totals.relative_l2_mean, b.totals.relative_l2_mean, 1e-3);
  EXPECT_EQ(a.layers[1].attribution.matrices, b.layers[1].attribution.matrices);
  EXPECT_EQ(a.layers[1].attribution.matrices, c.layers[1].attribution.matrices);
  EXPECT_NEAR(a.totals.relative_l2_mean, c.totals.relative_l2_mean, 0.02);
  EXPECT_THAT(a.backend, ::testing::StartsWith("reference"));
  EXPECT_THAT(c.backend, ::testing::StartsWith("xnnpack"));
  EXPECT_THAT(a.warnings, IsEmpty());
  EXPECT_THAT(c.warnings, ElementsAre(HasSubstr("qd8")));
}

TEST_F(BlockReport, SaysLoudlyThatInputsAreRandom) {
  const Checkpoint checkpoint = MakeCheckpoint(1);
  const ModelReport report =
      Build(checkpoint, MakeModel(checkpoint, kQ4), Calibration::Random(5, 1));
  EXPECT_EQ(report.calibration_source, "random");
  EXPECT_EQ(report.calibration_tokens, 5u);
  EXPECT_EQ(report.layers[0].tokens, 5u);
  EXPECT_THAT(report.warnings, ElementsAre(HasSubstr("RANDOM INPUTS")));
}

TEST_F(BlockReport, NamesLayersWithoutCalibration) {
  const Checkpoint checkpoint = MakeCheckpoint(3);
  const ModelReport report =
      Build(checkpoint, MakeModel(checkpoint, kQ4), MakeCalibration({0, 2}, 7));
  EXPECT_THAT(report.warnings, ElementsAre(AllOf(HasSubstr("layer 1:"), HasSubstr("RANDOM"))));
  ASSERT_EQ(report.layers.size(), 3u);
  EXPECT_EQ(report.layers[1].tokens, 7u);
  EXPECT_GT(report.layers[1].output.relative_l2, 0);
}

TEST_F(BlockReport, NamesFallbacksAndOtherActivations) {
  const Checkpoint checkpoint = MakeCheckpoint(2);
  const Model model = MakeModel(checkpoint, kQ8, [](LayerInfo& info) {
    if (info.layer == 0) info.matrices[Matrix::kUp]->requested = kQ4;
    if (info.layer == 1) info.activation = Activation::kRelu2;
  });
  const ModelReport report = Build(checkpoint, model, MakeCalibration({0, 1}));
  EXPECT_THAT(report.warnings,
              ElementsAre(AllOf(HasSubstr("layer 0: up is qb8w:32"), HasSubstr("qb4w:32")),
                          AllOf(HasSubstr("layer 1:"), HasSubstr("relu2"), HasSubstr("silu"))));
  EXPECT_EQ(report.layers[0].matrices[Matrix::kUp]->requested, kQ4);
  EXPECT_GT(report.layers[1].attribution.all, 0.1);
  EXPECT_LT(report.layers[0].attribution.all, 0.03);
}

TEST_F(BlockReport, AnErrorNamesFileLayerAndReason) {
  const Checkpoint two = MakeCheckpoint(2);
  const Model model = MakeModel(two, kQ4);
  Write(dir_.File("narrow.safetensors"),
        {{"model.layers.0.mlp.input", {1, 3}, std::vector<float>(3)}});
  const auto narrow =
      BuildReport(two, model, *Calibration::Open(dir_.File("narrow.safetensors")), {});
  ASSERT_FALSE(narrow.has_value());
  EXPECT_THAT(narrow.error().message,
              AllOf(HasSubstr(model.path()), HasSubstr("layer 0"), HasSubstr("[1, 3]")));
  ReportOptions options;
  options.backend = "gpu";
  const auto backend = BuildReport(two, model, MakeCalibration({0, 1}), options);
  ASSERT_FALSE(backend.has_value());
  EXPECT_THAT(backend.error().message, HasSubstr("gpu"));
  const Checkpoint one = MakeCheckpoint(1);
  const auto missing = BuildReport(one, model, MakeCalibration({0, 1}), {});
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("layer 1"), HasSubstr("has no such layer")));
}

// A NaN must not vanish from the totals, which std::max would let happen.
TEST_F(BlockReport, AnOutputThatIsNotFiniteReachesTheTotals) {
  const Checkpoint checkpoint = MakeCheckpoint(3);
  const Model model = MakeModel(checkpoint, kF32);
  // Finite inputs whose products overflow f32, though not double.
  std::vector<Tensor> inputs;
  inputs.reserve(3);
  for (size_t n = 0; n < 3; ++n) {
    inputs.push_back({std::format("model.layers.{}.mlp.input", n),
                      {2, kD},
                      test::RandomVector(random_, 2 * kD, n == 1 ? 1e37f : 1.0f)});
  }
  Write(dir_.File("large.safetensors"), inputs);
  const ModelReport report =
      Build(checkpoint, model, *Calibration::Open(dir_.File("large.safetensors")));
  EXPECT_TRUE(std::isnan(report.layers[1].output.relative_l2));
  EXPECT_TRUE(std::isnan(report.totals.relative_l2_max));
  EXPECT_TRUE(std::isnan(report.totals.relative_l2_mean));
  EXPECT_THAT(report.warnings, ElementsAre("layer 1: the output of 2 of 2 tokens is not finite"));
}

}  // namespace
}  // namespace sluice
