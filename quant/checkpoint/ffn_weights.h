// A block's weights as the checkpoint's authors trained them.
#ifndef SLUICE_QUANT_CHECKPOINT_FFN_WEIGHTS_H_
#define SLUICE_QUANT_CHECKPOINT_FFN_WEIGHTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sluice/format.h"
#include "sluice/matrix_view.h"

namespace sluice {

// One linear layer, y = W·x + b.
struct LinearWeights {
  size_t rows = 0;             // out
  size_t cols = 0;             // in
  std::vector<float> weights;  // [rows, cols], whatever the file's orientation was
  std::vector<float> bias;     // [rows], or empty

  MatrixView<const float> view() const { return {weights.data(), rows, cols}; }
};

// A block in FP32. Without a gate, matrices[kGate] is empty.
struct FfnWeights {
  size_t layer = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  PerMatrix<LinearWeights> matrices;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_FFN_WEIGHTS_H_
