#include "quant/quantizer/rescale.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "quant/decoder/float_block.h"
#include "quant/quantizer/quantizer.h"
#include "quant/quantizer/scale_search.h"
#include "quant/quantizer/seen_activations.h"
#include "src/base/half.h"
#include "src/base/status.h"

namespace sluice {
namespace {

constexpr double kMaxOctaves = 6;
// Of a group's mean square: what is dead or nearly so must not move the others.
constexpr double kFloor = 1e-4;
// Of down's rows every so many are looked at.
constexpr size_t kRowStep = 4;

// Half the logarithm of each mean square, in octaves.
std::vector<double> Octaves(std::span<const float> squares) {
  double mean = 0;
  for (const float s : squares)
    mean += static_cast<double>(s) / static_cast<double>(squares.size());
  std::vector<double> octaves;
  octaves.reserve(squares.size());
  for (const float s : squares) {
    const double square = std::max(static_cast<double>(s), kFloor * mean);
    octaves.push_back(square > 0 ? 0.5 * std::log2(square) : 0);
  }
  return octaves;
}

// The mean of the squares of each column.
std::vector<float> ColumnEnergy(MatrixView<const float> m) {
  std::vector<float> energy(m.cols);
  for (size_t r = 0; r < m.rows; ++r) {
    const auto row = m.row(r);
    for (size_t c = 0; c < m.cols; ++c) energy[c] += row[c] * row[c];
  }
  for (float& e : energy) e /= static_cast<float>(std::max<size_t>(m.rows, 1));
  return energy;
}

// Neurons that share a scale: with a scale for each token, or for each row of down, all of them.
size_t GroupSize(WeightFormat down, ActivationFormat hidden, size_t d_ff) {
  if (!down.blocked() || hidden != ActivationFormat::kBlock) return d_ff;
  return std::max<size_t>(down.block, kActivationBlock);
}

// The block's outputs that are looked at, and how far a rescaled and rounded down is from them.
class Judge {
 public:
  Judge(const FfnWeights& weights, WeightFormat format, const BlockActivations& activations,
        const RescaleSample& sample, const ThreadPool* pool)
      : format_(format), activations_(activations), gains_(sample.gains), pool_(pool) {
    const LinearWeights& down = weights.matrices[Matrix::kDown];
    LinearWeights& part = part_.matrices[Matrix::kDown];
    part.cols = down.cols;
    for (size_t r = 0; r < down.rows; r += kRowStep, ++part.rows) {
      const auto row = down.view().row(r);
      part.weights.insert(part.weights.end(), row.begin(), row.end());
    }
    energy_ = ColumnEnergy(View(Hidden(weights, sample.fit)));
    hidden_ = Hidden(weights, sample.held_out);
    wanted_ = Output(part_, hidden_);
  }

  std::span<const float> energy() const { return energy_; }

  Expected<double> Error(std::span<const float> factors) const {
    FfnWeights trial = part_;
    LinearWeights& down = trial.matrices[Matrix::kDown];
    ApplyRescale(Matrix::kDown, factors, down);
    std::vector<float> energy = energy_;
    std::vector<float> hidden = hidden_;
    for (size_t j = 0; j < factors.size(); ++j) energy[j] *= factors[j] * factors[j];
    for (size_t i = 0; !factors.empty() && i < hidden.size(); ++i)
      hidden[i] *= factors[i % down.cols];
    RoundActivations({hidden.data(), hidden.size() / down.cols, down.cols}, activations_.hidden,
                     pool_);
    SLUICE_ASSIGN(QuantizedMatrix rounded, QuantizeRtn(down.view(), format_, pool_));
    SearchScales(down.view(), energy, rounded, pool_);
    down.weights = Dequantize(rounded);
    const std::vector<float> output = Output(trial, hidden);
    double error = 0;
    for (size_t i = 0; i < output.size(); ++i) {
      const double gain = gains_.empty() ? 1 : gains_[i / down.rows];
      const double miss = gain * (static_cast<double>(output[i]) - static_cast<double>(wanted_[i]));
      error += miss * miss;
    }
    return error;
  }

 private:
  MatrixView<const float> View(const std::vector<float>& hidden) const {
    const size_t d_ff = part_.matrices[Matrix::kDown].cols;
    return {hidden.data(), hidden.size() / d_ff, d_ff};
  }

  std::vector<float> Hidden(const FfnWeights& weights, MatrixView<const float> x) const {
    const size_t d_ff = weights.matrices[Matrix::kUp].rows;
    std::vector<float> hidden(x.rows * d_ff), scratch(x.rows * d_ff);
    BlockHidden(weights, x, {hidden.data(), x.rows, d_ff}, {scratch.data(), x.rows, d_ff}, pool_);
    return hidden;
  }

  std::vector<float> Output(const FfnWeights& weights, const std::vector<float>& hidden) const {
    const MatrixView<const float> rows = View(hidden);
    const size_t outputs = weights.matrices[Matrix::kDown].rows;
    std::vector<float> output(rows.rows * outputs);
    BlockOutput(weights, rows, {output.data(), rows.rows, outputs}, pool_);
    return output;
  }

  FfnWeights part_;  // down alone, and of it some rows
  WeightFormat format_;
  BlockActivations activations_;
  std::span<const float> gains_;
  const ThreadPool* pool_;
  std::vector<float> energy_;
  std::vector<float> hidden_;
  std::vector<float> wanted_;
};

}  // namespace

bool CanRescale(bool gated, const PerMatrix<WeightFormat>& formats) {
  return gated && formats[Matrix::kUp].quantized() && formats[Matrix::kDown].quantized();
}

std::vector<float> RescaleFactors(MatrixView<const float> down, std::span<const float> energy,
                                  size_t group, RescaleRule rule) {
  const std::vector<float> columns = ColumnEnergy(down);
  std::vector<float> factors;
  factors.reserve(down.cols);
  for (size_t begin = 0; begin < down.cols; begin += group) {
    const size_t count = std::min(group, down.cols - begin);
    const std::vector<double> column = Octaves(std::span(columns).subspan(begin, count));
    const std::vector<double> hidden = Octaves(energy.subspan(begin, count));
    std::vector<double> octaves(count);
    double mean = 0;
    for (size_t j = 0; j < count; ++j) {
      octaves[j] = rule.column * column[j] - rule.hidden * hidden[j];
      mean += octaves[j] / static_cast<double>(count);
    }
    for (const double o : octaves) {
      const double factor = std::exp2(std::clamp(o - mean, -kMaxOctaves, kMaxOctaves));
      factors.push_back(ToFloat(ToBf16(static_cast<float>(factor))));
    }
  }
  return factors;
}

Expected<std::vector<float>> ChooseRescale(const FfnWeights& weights,
                                           const PerMatrix<WeightFormat>& formats,
                                           const BlockActivations& activations,
                                           const RescaleSample& sample, const ThreadPool* pool) {
  const LinearWeights& down = weights.matrices[Matrix::kDown];
  const WeightFormat format = formats[Matrix::kDown];
  const Judge judge(weights, format, activations, sample, pool);
  const size_t group = GroupSize(format, activations.hidden, down.cols);
  std::vector<float> best;
  SLUICE_ASSIGN(double least, judge.Error(best));
  for (const RescaleRule rule : kRescaleRules) {
    std::vector<float> factors = RescaleFactors(down.view(), judge.energy(), group, rule);
    SLUICE_ASSIGN(const double error, judge.Error(factors));
    if (!(error < least)) continue;
    least = error;
    best = std::move(factors);
  }
  return best;
}

void ApplyRescale(Matrix m, std::span<const float> factors, LinearWeights& weights) {
  if (factors.empty() || m == Matrix::kGate) return;
  for (size_t i = 0; i < weights.weights.size(); ++i) {
    float& w = weights.weights[i];
    w = m == Matrix::kUp ? w * factors[i / weights.cols] : w / factors[i % weights.cols];
  }
  if (m != Matrix::kUp) return;
  for (size_t j = 0; j < weights.bias.size(); ++j) weights.bias[j] *= factors[j];
}

std::vector<float> Restore(Matrix m, std::span<const float> factors,
                           const QuantizedMatrix& stored) {
  std::vector<float> weights = Dequantize(stored);
  if (factors.empty() || m == Matrix::kGate) return weights;
  for (size_t i = 0; i < weights.size(); ++i) {
    float& w = weights[i];
    w = m == Matrix::kUp ? w / factors[i / stored.cols] : w * factors[i % stored.cols];
  }
  return weights;
}

float RescaleAt(Matrix m, std::span<const float> factors, size_t row, size_t column) {
  if (factors.empty() || m == Matrix::kGate) return 1;
  return m == Matrix::kUp ? factors[row] : 1 / factors[column];
}

}  // namespace sluice
