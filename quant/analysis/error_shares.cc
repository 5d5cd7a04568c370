#include "quant/analysis/error_shares.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "quant/analysis/metrics.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

// Columns of down that one task takes.
constexpr size_t kTaskNeurons = 64;

// Columns [begin, begin + count) of a matrix, widened.
DoubleMatrix Columns(MatrixView<const float> matrix, size_t begin, size_t count) {
  return ToDouble({matrix.data + begin, matrix.rows, count, matrix.stride});
}

// Of neurons [begin, end).
void ShareOut(const DownSide& trained, const DownSide& quantized, const DoubleMatrix& error,
              double total, size_t begin, size_t end, std::vector<NeuronShare>& shares) {
  const auto first = static_cast<Eigen::Index>(begin);
  const auto count = static_cast<Eigen::Index>(end - begin);
  // ⟨v, e⟩ and ⟨v̂, e⟩ for each token and neuron.
  const DoubleMatrix along_v = error * Columns(trained.weights, begin, end - begin);
  const DoubleMatrix along_v_hat = error * Columns(quantized.weights, begin, end - begin);
  const auto h = trained.hidden.middleCols(first, count).array();
  const auto h_hat = quantized.hidden.middleCols(first, count).array();
  const DoubleMatrix key = (h_hat - h) * along_v.array();
  const DoubleMatrix value = h_hat * (along_v_hat - along_v).array();
  for (Eigen::Index j = 0; j < count; ++j) {
    NeuronShare& neuron = shares[begin + static_cast<size_t>(j)];
    neuron.neuron = begin + static_cast<size_t>(j);
    neuron.key = key.col(j).sum() / total;
    neuron.value = value.col(j).sum() / total;
    neuron.share = neuron.key + neuron.value;
    Eigen::Index token = 0;
    (key.col(j) + value.col(j)).maxCoeff(&token);
    neuron.token = static_cast<size_t>(token);
  }
}

}  // namespace

std::vector<TokenShare> WorstTokens(const DoubleMatrix& reference, MatrixView<const float> actual,
                                    size_t count) {
  std::vector<TokenShare> tokens;
  double total = 0;
  for (size_t t = 0; t < actual.rows; ++t) {
    const auto y = View(reference).row(t);
    ErrorSums sums;
    double squares = 0;
    for (size_t c = 0; c < y.size(); ++c) {
      const auto y_hat = static_cast<double>(actual.row(t)[c]);
      sums.Add(y[c], y_hat);
      squares += (y_hat - y[c]) * (y_hat - y[c]);
    }
    tokens.push_back({t, sums.relative_l2(), squares});
    total += squares;
  }
  const auto rank = [](const TokenShare& token) {
    return std::isnan(token.relative_l2) ? std::numeric_limits<double>::infinity()
                                         : token.relative_l2;
  };
  std::ranges::stable_sort(tokens, std::greater(), rank);
  if (tokens.size() > count) tokens.resize(count);
  for (TokenShare& token : tokens) token.share = total == 0 ? 0 : token.share / total;
  return tokens;
}

std::vector<NeuronShare> WorstNeurons(const DownSide& trained, const DownSide& quantized,
                                      const DoubleMatrix& error, size_t count,
                                      const ThreadPool* pool) {
  const double total = error.squaredNorm();
  if (!std::isfinite(total) || total == 0) return {};
  std::vector<NeuronShare> shares(trained.weights.cols);
  ParallelFor(pool, shares.size(), kTaskNeurons, [&](size_t begin, size_t end) {
    ShareOut(trained, quantized, error, total, begin, end, shares);
  });
  std::ranges::stable_sort(shares, std::greater(), &NeuronShare::share);
  if (shares.size() > count) shares.resize(count);
  return shares;
}

}  // namespace sluice
