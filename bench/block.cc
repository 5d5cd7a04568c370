#include "bench/block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "src/base/status.h"

namespace sluice::bench {
namespace {

// Seeds are fixed: which random weights they are makes no difference to the time.
QuantizedMatrix RandomMatrix(size_t rows, size_t cols, WeightFormat format, uint64_t seed) {
  std::mt19937 engine(static_cast<uint32_t>(seed));
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
  if (!format.quantized()) {
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<float> values(rows * cols);
    for (float& v : values) v = normal(engine);
    return EncodeFloat(values, rows, cols, format);
  }
  const int largest = MaxInteger(format.type);
  std::uniform_int_distribution<int> integer(-largest, largest);
  matrix.integers.resize(rows * cols);
  for (int8_t& v : matrix.integers) v = static_cast<int8_t>(integer(engine));
  // Uniform integers have a deviation of 0.58 times the largest one. A bf16 value is an fp16 value
  // too in the range that these scales have.
  const WeightFormat bf16_scales = {format.type, 32};
  std::uniform_real_distribution<float> spread(0.7f, 1.3f);
  matrix.scales.resize(rows * matrix.blocks());
  for (float& s : matrix.scales) {
    s = StoredScale(spread(engine) * deviation / (0.58f * static_cast<float>(largest)),
                    bf16_scales);
  }
  return matrix;
}

// matrix · x. One row after the other, each block's sum times its scale.
std::vector<double> Times(const QuantizedMatrix& matrix, std::span<const double> x) {
  std::vector<double> y(matrix.rows);
  const size_t block = matrix.block();
  for (size_t r = 0; r < matrix.rows; ++r) {
    double total = 0;
    for (size_t first = 0; first < matrix.cols; first += block) {
      const size_t end = std::min(first + block, matrix.cols);
      double sum = 0;
      for (size_t k = first; k < end; ++k) {
        const size_t at = r * matrix.cols + k;
        const double weight = matrix.format.quantized() ? matrix.integers[at]
                                                        : static_cast<double>(matrix.values[at]);
        sum += weight * x[k];
      }
      total += matrix.format.quantized() ? sum * static_cast<double>(matrix.scale(r, first)) : sum;
    }
    y[r] = total;
  }
  return y;
}

// The expected relative L2 error of `values` rounded to int8 with one scale.
double RoundingError(std::span<const double> values) {
  double largest = 0;
  double sum = 0;
  for (const double v : values) {
    largest = std::max(largest, std::abs(v));
    sum += v * v;
  }
  return largest / 127 / std::sqrt(12 * sum / static_cast<double>(values.size()));
}

}  // namespace

PlainBlock RandomBlock(const Shape& shape, const BlockFormat& format) {
  PlainBlock block;
  block.d_model = shape.d_model;
  block.d_ff = shape.d_ff;
  block.format = format;
  for (const Matrix m : kMatrices) {
    const bool down = m == Matrix::kDown;
    block.matrices[m] =
        RandomMatrix(down ? shape.d_model : shape.d_ff, down ? shape.d_ff : shape.d_model,
                     format.weights, static_cast<uint64_t>(m) + 1);
  }
  return block;
}

std::vector<float> RandomTokens(size_t tokens, size_t d_model) {
  std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(tokens * d_model);
  const size_t distinct = std::min(tokens, kDistinctTokens) * d_model;
  for (size_t i = 0; i < x.size(); ++i) x[i] = i < distinct ? normal(engine) : x[i - distinct];
  return x;
}

ExactResult Exact(const PlainBlock& block, std::span<const float> x) {
  ExactResult result;
  for (size_t first = 0; first < x.size(); first += block.d_model) {
    const std::span<const float> row = x.subspan(first, block.d_model);
    const std::vector<double> token(row.begin(), row.end());
    const std::vector<double> gate = Times(block.matrices[Matrix::kGate], token);
    std::vector<double> hidden = Times(block.matrices[Matrix::kUp], token);
    for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= gate[i] / (1.0 + std::exp(-gate[i]));
    const std::vector<double> out = Times(block.matrices[Matrix::kDown], hidden);
    result.y.insert(result.y.end(), out.begin(), out.end());
    const double input_error = RoundingError(token);
    const double hidden_error = RoundingError(hidden);
    result.row_error = std::max(
        result.row_error, std::sqrt(2 * input_error * input_error + hidden_error * hidden_error));
  }
  return result;
}

double LargestError(MatrixView<const float> y, std::span<const double> exact) {
  double largest = 0;
  for (size_t t = 0; t < y.rows; ++t) {
    const std::span<const double> want = exact.subspan(t % kDistinctTokens * y.cols, y.cols);
    double error = 0;
    double norm = 0;
    for (size_t i = 0; i < y.cols; ++i) {
      const double difference = static_cast<double>(y.row(t)[i]) - want[i];
      error += difference * difference;
      norm += want[i] * want[i];
    }
    // Written so that NaN counts as wrong.
    const double relative = std::sqrt(error / norm);
    if (!(relative <= std::numeric_limits<double>::max())) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, relative);
  }
  return largest;
}

Expected<PackedRing> PackedRing::Create(const PlainBlock& block, size_t copies, PageKind pages) {
  PackedRing ring;
  BlockView view;
  view.d_model = block.d_model;
  view.d_ff = block.d_ff;
  view.input = view.hidden = block.format.used();
  PerMatrix<PackedMatrix> packed;
  for (const Matrix m : kMatrices) {
    SLUICE_ASSIGN(packed[m], Pack(block.matrices[m]));
    view.matrices[m] = packed[m].view();
    const PackedLayout& layout = view.matrices[m].layout;
    ring.bytes_ += layout.weight_bytes() + layout.scale_bytes();
  }
  SLUICE_ASSIGN(ring.memory_, PageBuffer::Create(ring.bytes_ * copies, pages));
  std::byte* to = ring.memory_.data();
  const auto copy = [&to](const std::byte* from, size_t bytes) {
    if (from == nullptr) return from;
    std::memcpy(to, from, bytes);
    to += bytes;
    return static_cast<const std::byte*>(to - bytes);
  };
  for (size_t i = 0; i < copies; ++i) {
    BlockView own = view;
    for (PackedMatrixView& matrix : own.matrices.items) {
      matrix.weights = copy(matrix.weights, matrix.layout.weight_bytes());
      matrix.scales = copy(matrix.scales, matrix.layout.scale_bytes());
    }
    ring.views_.push_back(own);
  }
  return ring;
}

Expected<uint64_t> PackedBytes(const Shape& shape, WeightFormat format) {
  uint64_t bytes = 0;
  for (const Matrix m : kMatrices) {
    const bool down = m == Matrix::kDown;
    SLUICE_ASSIGN(const PackedLayout layout,
                  PackedLayout::Create(format, down ? shape.d_model : shape.d_ff,
                                       down ? shape.d_ff : shape.d_model));
    bytes += layout.weight_bytes() + layout.scale_bytes();
  }
  return bytes;
}

}  // namespace sluice::bench
