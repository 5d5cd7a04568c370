// A block, trained and quantized, and what CompareBlock says of it.
#ifndef SLUICE_TESTS_QUANT_ANALYSIS_STUDY_H_
#define SLUICE_TESTS_QUANT_ANALYSIS_STUDY_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "quant/analysis/compare_block.h"
#include "quant/quantizer/quantizer.h"
#include "quant/quantizer/rescale.h"
#include "src/base/half.h"
#include "src/ffn/ffn_impl.h"
#include "tests/support/double_block.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice::test {

// A trained block, its packed form, and inputs.
class Study {
 public:
  Study(Random& random, size_t d, size_t m, bool gated = true, bool biases = false,
        size_t tokens = 9)
      : tokens_(tokens) {
    trained.gated = gated;
    for (const Matrix matrix : kMatrices) {
      if (matrix == Matrix::kGate && !gated) continue;
      LinearWeights& w = trained.matrices[matrix];
      w.rows = matrix == Matrix::kDown ? d : m;
      w.cols = matrix == Matrix::kDown ? m : d;
      w.weights = RandomVector(random, d * m, 1 / std::sqrt(static_cast<float>(w.cols)));
      if (biases) w.bias = RandomVector(random, w.rows);
    }
    x = RandomVector(random, tokens * d);
    view.d_model = d;
    view.d_ff = m;
    view.gated = gated;
  }

  // Packs all matrices; gate's format means nothing without one.
  void Quantize(PerMatrix<WeightFormat> formats,
                std::optional<ActivationFormat> activations = std::nullopt) {
    view.activation = trained.activation;
    const BlockActivations chosen = activations ? ActivationsFor(formats, view.gated, *activations)
                                                : DefaultActivations(formats, view.gated);
    view.input = chosen.input;
    view.hidden = chosen.hidden;
    for (const Matrix m : kMatrices) {
      if (m == Matrix::kGate && !view.gated) continue;
      LinearWeights w = trained.matrices[m];
      ApplyRescale(m, rescale, w);
      packed[m] = *Pack(*QuantizeRtn(w.view(), formats[m], nullptr), w.bias);
      view.matrices[m] = packed[m].view();
    }
  }

  Expected<BlockComparison> TryCompare(const ThreadPool* pool = nullptr) {
    const Ffn ffn = *CreateFfn(view, {.backend = "reference"});
    Workspace workspace = *ffn.Plan(tokens_);
    computed.resize(x.size());
    const Status status =
        ffn.Forward(inputs(), {computed.data(), tokens_, view.d_model}, workspace);
    EXPECT_TRUE(status.has_value());
    return Judge(pool);
  }
  Expected<BlockComparison> Judge(const ThreadPool* pool = nullptr) const {
    const ExactBlock exact = {
        trained.activation, trained.gated,
        [this](Matrix m) -> Expected<LinearWeights> { return trained.matrices[m]; }};
    return CompareBlock(exact, view, inputs(), {computed.data(), tokens_, view.d_model}, pool,
                        rescale);
  }
  BlockComparison Compare(const ThreadPool* pool = nullptr) {
    auto comparison = TryCompare(pool);
    EXPECT_TRUE(comparison.has_value()) << comparison.error().message;
    return *std::move(comparison);
  }
  Attribution Attribute() { return Compare().report.attribution; }

  MatrixView<const float> inputs() const { return {x.data(), tokens_, view.d_model}; }

  // The trained block in double, by the tests' own loops.
  DoubleBlock Double() const {
    DoubleBlock block{trained.activation, trained.gated, {}};
    for (const Matrix m : kMatrices) {
      const LinearWeights& w = trained.matrices[m];
      block.matrices[m] = {
          w.rows, w.cols, {w.weights.begin(), w.weights.end()}, {w.bias.begin(), w.bias.end()}};
    }
    return block;
  }

  // Factors of bf16 for all neurons, from about 1/8 to 8; Quantize takes them.
  void Rescale(Random& random) {
    rescale.clear();
    for (size_t j = 0; j < view.d_ff; ++j) {
      rescale.push_back(ToFloat(ToBf16(std::exp2(random.Normal(1.2f)))));
    }
  }

  // A stored matrix as the trained block has it, divided by hand.
  DoubleMatrix Restored(Matrix m) const {
    DoubleMatrix matrix = DoubleMatrix::From(view.matrices[m]);
    for (size_t r = 0; r < matrix.rows; ++r) {
      for (size_t c = 0; c < matrix.cols; ++c) {
        double& w = matrix.weights[r * matrix.cols + c];
        if (m == Matrix::kUp) w /= rescale[r];
        if (m == Matrix::kDown) w *= rescale[c];
      }
    }
    if (m == Matrix::kUp) matrix.bias = Double().matrices[m].bias;
    return matrix;
  }

  FfnWeights trained;
  std::vector<float> rescale;  // empty: the file has no factors
  BlockView view;
  PerMatrix<PackedMatrix> packed;
  std::vector<float> x;
  std::vector<float> computed;

 private:
  size_t tokens_;
};

}  // namespace sluice::test

#endif  // SLUICE_TESTS_QUANT_ANALYSIS_STUDY_H_
