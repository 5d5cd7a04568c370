// Random matrices and blocks in any format.
#ifndef SLUICE_TESTS_SUPPORT_RANDOM_BLOCK_H_
#define SLUICE_TESTS_SUPPORT_RANDOM_BLOCK_H_

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/half.h"
#include "src/format/pack.h"
#include "src/format/quantized_matrix.h"
#include "tests/support/seed.h"

namespace sluice::test {

// Integers over the format's whole range, scales that make the weights about N(0, 1/K).
inline QuantizedMatrix RandomMatrix(Random& random, WeightFormat format, size_t rows, size_t cols) {
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
  if (!format.quantized()) {
    for (size_t i = 0; i < rows * cols; ++i) matrix.values.push_back(random.Normal(deviation));
    return EncodeFloat(matrix.values, rows, cols, format);
  }
  const int low = MinInteger(format.type);
  const int high = MaxInteger(format.type);
  for (size_t i = 0; i < rows * cols; ++i) {
    matrix.integers.push_back(static_cast<int8_t>(random.Integer(low, high)));
  }
  for (size_t i = 0; i < rows * matrix.blocks(); ++i) {
    const float scale = deviation / static_cast<float>(high) * (1.0f + std::fabs(random.Normal()));
    matrix.scales.push_back(StoredScale(scale, format));
  }
  return matrix;
}

inline std::vector<float> RandomVector(Random& random, size_t n, float deviation = 1.0f) {
  std::vector<float> values(n);
  for (float& v : values) v = random.Normal(deviation);
  return values;
}

struct BlockOptions {
  PerMatrix<WeightFormat> formats;
  Activation activation = Activation::kSilu;
  bool gated = true;
  bool biases = false;
  std::optional<ActivationFormat> activations = {};  // for quantized weights; nullopt: the default
};

// A packed block and the plain matrices it was packed from.
struct RandomBlock {
  BlockView view;
  PerMatrix<QuantizedMatrix> plain;
  PerMatrix<std::vector<float>> bias;
  PerMatrix<PackedMatrix> packed;  // what `view` points to
};

inline RandomBlock MakeRandomBlock(Random& random, size_t d_model, size_t d_ff,
                                   const BlockOptions& options) {
  RandomBlock block;
  block.view.d_model = d_model;
  block.view.d_ff = d_ff;
  block.view.activation = options.activation;
  block.view.gated = options.gated;
  const BlockActivations activations =
      options.activations ? ActivationsFor(options.formats, options.gated, *options.activations)
                          : DefaultActivations(options.formats, options.gated);
  block.view.input = activations.input;
  block.view.hidden = activations.hidden;
  for (const Matrix m : kMatrices) {
    if (m == Matrix::kGate && !options.gated) continue;
    const bool down = m == Matrix::kDown;
    const size_t rows = down ? d_model : d_ff;
    block.plain[m] = RandomMatrix(random, options.formats[m], rows, down ? d_ff : d_model);
    if (options.biases) block.bias[m] = RandomVector(random, rows);
    block.packed[m] = *Pack(block.plain[m], block.bias[m]);
    block.view.matrices[m] = block.packed[m].view();
  }
  return block;
}

inline PerMatrix<WeightFormat> AllOf(WeightFormat format) { return {{format, format, format}}; }

}  // namespace sluice::test

#endif  // SLUICE_TESTS_SUPPORT_RANDOM_BLOCK_H_
