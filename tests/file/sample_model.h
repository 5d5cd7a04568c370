// Small packed models with random weights.
#ifndef SLUICE_TESTS_FILE_SAMPLE_MODEL_H_
#define SLUICE_TESTS_FILE_SAMPLE_MODEL_H_

#include <cstddef>
#include <format>
#include <string>
#include <utility>
#include <vector>

#include "sluice/model.h"
#include "src/file/model_writer.h"
#include "src/format/pack.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice::test {

// The description of one block under names like those of a checkpoint.
inline LayerInfo DescribeLayer(size_t layer, const BlockView& block) {
  LayerInfo info;
  info.layer = layer;
  info.d_model = block.d_model;
  info.d_ff = block.d_ff;
  info.activation = block.activation;
  info.gated = block.gated;
  info.input_activations = block.input;
  info.hidden_activations = block.hidden;
  for (const Matrix m : kMatrices) {
    if (m == Matrix::kGate && !block.gated) continue;
    const PackedMatrixView& view = block.matrices[m];
    const std::string name = std::format("model.layers.{}.mlp.{}_proj", layer, Name(m));
    info.matrices[m] = MatrixInfo{
        .name = name + ".weight",
        .format = view.layout.format,
        .requested = view.layout.format,
        .rows = view.layout.rows,
        .cols = view.layout.cols,
        .bytes = view.layout.weight_bytes() + view.layout.scale_bytes(),
        .bias_name = view.bias == nullptr ? "" : name + ".bias",
    };
  }
  return info;
}

struct SampleModel {
  std::vector<LayerInfo> layers;
  std::vector<RandomBlock> blocks;
  std::vector<std::vector<float>> factors;  // of each layer; empty: not rescaled

  void Add(size_t layer, RandomBlock block, std::vector<float> rescale = {}) {
    layers.push_back(DescribeLayer(layer, block.view));
    layers.back().rescaled = !rescale.empty();
    blocks.push_back(std::move(block));
    factors.push_back(std::move(rescale));
  }

  Status Write(const std::string& path) const {
    auto writer = ModelWriter::Create(path, "llama", layers);
    if (!writer) return std::unexpected(writer.error());
    for (size_t i = 0; i < layers.size(); ++i) {
      for (const Matrix m : kMatrices) {
        if (!layers[i].matrices[m]) continue;
        const Status status = writer->Add(layers[i].layer, m, blocks[i].view.matrices[m]);
        if (!status) return status;
      }
      if (factors[i].empty()) continue;
      if (const Status status = writer->AddRescale(layers[i].layer, factors[i]); !status) {
        return status;
      }
    }
    return writer->Finish();
  }
};

// Two layers, numbered 3 and 7, with a different format for each matrix; the second has no gate.
inline SampleModel MixedModel(Random& random) {
  SampleModel model;
  const BlockOptions first = {
      .formats = {{WeightFormat{WeightType::kInt4, 32}, WeightFormat{WeightType::kInt8, 0},
                   WeightFormat{WeightType::kInt8, 32}}},
      .biases = true};
  const BlockOptions second = {.formats = {{WeightFormat{}, WeightFormat{WeightType::kBf16, 0},
                                            WeightFormat{WeightType::kInt4, 0}}},
                               .activation = Activation::kGelu,
                               .gated = false};
  model.Add(3, MakeRandomBlock(random, 33, 17, first));
  model.Add(7, MakeRandomBlock(random, 33, 17, second));
  return model;
}

// Layer 2 with factors, layer 5 without.
inline SampleModel RescaledModel(Random& random) {
  SampleModel model;
  const BlockOptions options = {.formats = AllOf({WeightType::kInt4, 32})};
  model.Add(2, MakeRandomBlock(random, 40, 5, options), {1, 0.5f, 3, 0x1.fep-7f, 62});
  model.Add(5, MakeRandomBlock(random, 40, 5, options));
  return model;
}

}  // namespace sluice::test

#endif  // SLUICE_TESTS_FILE_SAMPLE_MODEL_H_
