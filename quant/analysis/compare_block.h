// One block of a packed file against the checkpoint's.
#ifndef SLUICE_QUANT_ANALYSIS_COMPARE_BLOCK_H_
#define SLUICE_QUANT_ANALYSIS_COMPARE_BLOCK_H_

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "quant/analysis/block_report.h"
#include "quant/checkpoint/ffn_weights.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/pack.h"

namespace sluice {

// The checkpoint's block. Each matrix is loaded once, used and dropped before the next.
struct ExactBlock {
  Activation activation = Activation::kSilu;
  bool gated = true;
  std::function<Expected<LinearWeights>(Matrix)> load;
};

struct BlockComparison {
  // Without what only the file's description knows: layer, requested formats, bits per weight.
  LayerReport report;
  // Of this block, which the caller names.
  std::vector<std::string> warnings;
  std::vector<Finding> findings;
};

// `x` [t, d_model] are the inputs, t > 0; `computed` [t, d_model] is what a backend made of
// `packed` and them; `rescale` the file's factors for the layer, empty if it has none. Errors:
// shapes that differ, named by the matrix.
Expected<BlockComparison> CompareBlock(const ExactBlock& exact, const BlockView& packed,
                                       MatrixView<const float> x, MatrixView<const float> computed,
                                       const ThreadPool* pool, std::span<const float> rescale = {});

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_COMPARE_BLOCK_H_
