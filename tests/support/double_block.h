// A feed-forward block in double precision, by the formula: what every backend approximates.
#ifndef SLUICE_TESTS_SUPPORT_DOUBLE_BLOCK_H_
#define SLUICE_TESTS_SUPPORT_DOUBLE_BLOCK_H_

#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "sluice/format.h"
#include "src/format/pack.h"
#include "src/format/quantized_matrix.h"

namespace sluice::test {

inline double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kRelu:
      return x > 0.0 ? x : 0.0;
    case Activation::kRelu2:
      return x > 0.0 ? x * x : 0.0;
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double root = std::sqrt(2.0 / std::numbers::pi);
      return 0.5 * x * (1.0 + std::tanh(root * (x + 0.044715 * x * x * x)));
    }
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case Activation::kIdentity:
      return x;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

struct DoubleMatrix {
  size_t rows = 0;              // out
  size_t cols = 0;              // in
  std::vector<double> weights;  // [rows, cols]
  std::vector<double> bias;     // [rows]; empty: none

  // What the packed bytes stand for: integer · scale without rounding.
  static DoubleMatrix From(const PackedMatrixView& packed) {
    const QuantizedMatrix plain = Unpack(packed);
    DoubleMatrix matrix{plain.rows, plain.cols, {}, {}};
    for (size_t i = 0; i < plain.rows * plain.cols; ++i) {
      matrix.weights.push_back(plain.format.quantized()
                                   ? static_cast<double>(plain.integers[i]) *
                                         plain.scale(i / plain.cols, i % plain.cols)
                                   : plain.values[i]);
    }
    if (packed.bias != nullptr) matrix.bias.assign(packed.bias, packed.bias + plain.rows);
    return matrix;
  }

  template <class T>
  std::vector<double> Times(std::span<const T> x) const {
    std::vector<double> y(rows);
    for (size_t r = 0; r < rows; ++r) {
      double sum = 0.0;
      for (size_t k = 0; k < cols; ++k) sum += weights[r * cols + k] * static_cast<double>(x[k]);
      y[r] = bias.empty() ? sum : sum + bias[r];
    }
    return y;
  }
};

struct DoubleBlock {
  Activation activation = Activation::kSilu;
  bool gated = true;
  PerMatrix<DoubleMatrix> matrices;

  static DoubleBlock From(const BlockView& block) {
    DoubleBlock result{block.activation, block.gated, {}};
    for (const Matrix m : kMatrices) {
      if (m == Matrix::kGate && !block.gated) continue;
      result.matrices[m] = DoubleMatrix::From(block.matrices[m]);
    }
    return result;
  }

  // x is [tokens, d_model]; so is the result.
  std::vector<double> Forward(std::span<const float> x) const {
    const size_t d_model = matrices[Matrix::kUp].cols;
    std::vector<double> y;
    for (size_t first = 0; first < x.size(); first += d_model) {
      const std::span<const float> token = x.subspan(first, d_model);
      std::vector<double> hidden = matrices[Matrix::kUp].Times(token);
      const std::vector<double> gate =
          gated ? matrices[Matrix::kGate].Times(token) : std::vector<double>();
      for (size_t i = 0; i < hidden.size(); ++i) {
        hidden[i] =
            gated ? Activate(activation, gate[i]) * hidden[i] : Activate(activation, hidden[i]);
      }
      const std::vector<double> out =
          matrices[Matrix::kDown].Times(std::span<const double>(hidden));
      y.insert(y.end(), out.begin(), out.end());
    }
    return y;
  }
};

// ‖got − want‖ / ‖want‖; infinite if got holds a NaN, or if want is zero and got is not.
template <class Got>
double RelativeL2(std::span<const double> want, const Got& got) {
  double error = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - want[i];
    error += difference * difference;
    norm += want[i] * want[i];
  }
  if (std::isnan(error)) return std::numeric_limits<double>::infinity();
  return error == 0.0 ? 0.0 : std::sqrt(error / norm);
}

}  // namespace sluice::test

#endif  // SLUICE_TESTS_SUPPORT_DOUBLE_BLOCK_H_
