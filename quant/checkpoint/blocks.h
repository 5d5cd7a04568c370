// A checkpoint's tensors, found by name and put in their places in feed-forward blocks.
#ifndef SLUICE_QUANT_CHECKPOINT_BLOCKS_H_
#define SLUICE_QUANT_CHECKPOINT_BLOCKS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "quant/checkpoint/architecture.h"
#include "quant/checkpoint/checkpoint.h"
#include "quant/checkpoint/config.h"
#include "quant/checkpoint/tensor_source.h"
#include "sluice/error.h"

namespace sluice {

// Where one matrix's values are. Pointers are into the TensorSource.
struct MatrixPlace {
  const SourceTensor* weight = nullptr;
  size_t first_row = 0;  // of the tensor, which may hold two matrices
  Orientation orientation = Orientation::kOutIn;
  const SourceTensor* bias = nullptr;  // null: none
};

struct Block {
  SourceLayer layer;
  PerMatrix<MatrixPlace> places;  // of the matrices that `layer` has
};

struct Blocks {
  std::vector<Block> blocks;          // ascending by layer
  std::vector<std::string> warnings;  // layers that the configuration counts and no tensor has
};

// Finds every block. Each must be whole, of types that can be read, and of the shapes that the
// configuration and the family ask for; errors name the tensor and the two values that disagree.
// Mixtures of experts and packed weights (GPTQ and the like) are refused by name.
Expected<Blocks> FindBlocks(const TensorSource& source, const ModelConfig& config);

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_BLOCKS_H_
