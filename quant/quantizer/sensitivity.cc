#include "quant/quantizer/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "quant/decoder/float_block.h"
#include "quant/decoder/losses.h"
#include "quant/quantizer/fit_matrix.h"
#include "quant/quantizer/seen_activations.h"
#include "src/base/status.h"
#include "src/format/layout.h"
#include "src/format/pack.h"

namespace sluice {
namespace {

// The format whose divergence is measured, and shared out to the others.
constexpr WeightFormat kProbe = {WeightType::kInt4, 32};

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return sum;
}

class Meter {
 public:
  Meter(const Decoder& decoder, const Tokens& tokens, const SensitivityOptions& options,
        const ThreadPool* pool)
      : decoder_(decoder), options_(options), pool_(pool) {
    // Whole windows, at least one.
    for (const size_t window : tokens.windows) {
      if (!windows_.empty() && count_ + window > options.max_tokens) break;
      windows_.push_back(window);
      count_ += window;
    }
    ids_ = std::span(tokens.ids).first(count_);
  }

  Expected<std::vector<MatrixOptions>> Run() {
    exact_.resize(count_ * decoder_.d_model());
    SLUICE_TRY(decoder_.Embed(ids_, View(exact_)));
    for (size_t i = 0; i < decoder_.layers(); ++i) {
      SLUICE_TRY(AddLayer(i));
      if (options_.progress) options_.progress(i + 1, decoder_.layers());
    }
    SLUICE_TRY(ShareOut());
    return std::move(result_);
  }

 private:
  MatrixView<float> View(std::vector<float>& rows) const {
    return {rows.data(), count_, decoder_.d_model()};
  }

  // What the block gives for x, activations rounded as `activations` says.
  std::vector<float> Output(const FfnWeights& weights, const std::vector<float>& x,
                            const BlockActivations& activations) {
    const size_t d_ff = weights.matrices[Matrix::kUp].rows;
    std::vector<float> seen = x;
    std::vector<float> hidden(count_ * d_ff);
    std::vector<float> scratch(count_ * d_ff);
    std::vector<float> y(x.size());
    RoundActivations(View(seen), activations.input, pool_);
    const MatrixView<float> rows(hidden.data(), count_, d_ff);
    BlockHidden(weights, View(seen), rows, {scratch.data(), count_, d_ff}, pool_);
    RoundActivations(rows, activations.hidden, pool_);
    BlockOutput(weights, rows, View(y), pool_);
    return y;
  }

  Status AddLayer(size_t i) {
    SLUICE_ASSIGN(const DecoderLayer layer, decoder_.Layer(i));
    SLUICE_ASSIGN(const FfnWeights weights, decoder_.checkpoint().Load(i));
    layer.AddAttention(windows_, View(exact_), pool_);
    for (auto& stream : streams_) {
      layer.AddAttention(windows_, View(stream), pool_);
      AddBlock(layer, weights, stream);
    }
    std::vector<float> x(exact_.size());
    layer.BlockInput(View(exact_), View(x), pool_);
    std::vector<float> y = Output(weights, x, {});
    SLUICE_ASSIGN(std::vector<float> rounded, Compare(weights, x, y));
    streams_.push_back(exact_);
    layer.AddBlockOutput(View(rounded), View(streams_.back()), pool_);
    layer.AddBlockOutput(View(y), View(exact_), pool_);
    return {};
  }

  void AddBlock(const DecoderLayer& layer, const FfnWeights& weights, std::vector<float>& stream) {
    std::vector<float> x(stream.size());
    layer.BlockInput(View(stream), View(x), pool_);
    std::vector<float> y = Output(weights, x, {});
    layer.AddBlockOutput(View(y), View(stream), pool_);
  }

  // Notes the squared errors of every option, and returns the output of the block with kProbe.
  Expected<std::vector<float>> Compare(const FfnWeights& weights, const std::vector<float>& x,
                                       const std::vector<float>& y) {
    const PerMatrix<LossMoments> moments = Moments(weights, x);
    FfnWeights probe = weights;
    for (const Matrix m : kMatrices) {
      const LinearWeights& exact = weights.matrices[m];
      if (exact.weights.empty()) continue;
      MatrixOptions options{weights.layer, m, exact.rows * exact.cols, {}};
      for (const WeightFormat format : options_.formats) {
        SLUICE_ASSIGN(const PackedLayout layout,
                      PackedLayout::Create(format, exact.rows, exact.cols));
        FfnWeights one = weights;
        SLUICE_ASSIGN(one.matrices[m].weights, Rounded(exact, format, moments[m]));
        const double error = SquaredError(Output(one, x, ActivationsOf(format, m)), y);
        options.options.push_back({format, layout.weight_bytes() + layout.scale_bytes(), error});
      }
      SLUICE_ASSIGN(probe.matrices[m].weights, Rounded(exact, kProbe, moments[m]));
      result_.push_back(std::move(options));
    }
    const BlockActivations activations =
        DefaultActivations({{kProbe, kProbe, kProbe}}, weights.gated);
    std::vector<float> rounded = Output(probe, x, activations);
    probe_errors_.push_back(SquaredError(rounded, y));
    return rounded;
  }

  // Those that a matrix of this format takes where it stands, the other matrices taking none.
  BlockActivations ActivationsOf(WeightFormat format, Matrix m) const {
    const ActivationFormat kind =
        !format.quantized()
            ? ActivationFormat::kFloat
            : options_.activations.value_or(format.blocked() ? ActivationFormat::kBlock
                                                             : ActivationFormat::kRow);
    BlockActivations activations;
    (m == Matrix::kDown ? activations.hidden : activations.input) = kind;
    return activations;
  }

  PerMatrix<LossMoments> Moments(const FfnWeights& weights, const std::vector<float>& x) {
    PerMatrix<LossMoments> moments;
    LossMoments& input = moments[Matrix::kUp];
    input = LossMoments::Zero(decoder_.d_model());
    AddSecondMoments({x.data(), count_, decoder_.d_model()}, input, pool_);
    Mirror(input);
    moments[Matrix::kGate] = input;
    const size_t d_ff = weights.matrices[Matrix::kUp].rows;
    std::vector<float> hidden(count_ * d_ff);
    std::vector<float> scratch(count_ * d_ff);
    const MatrixView<float> rows(hidden.data(), count_, d_ff);
    BlockHidden(weights, {x.data(), count_, decoder_.d_model()}, rows,
                {scratch.data(), count_, d_ff}, pool_);
    moments[Matrix::kDown] = LossMoments::Zero(d_ff);
    AddSecondMoments(rows, moments[Matrix::kDown], pool_);
    Mirror(moments[Matrix::kDown]);
    return moments;
  }

  Expected<std::vector<float>> Rounded(const LinearWeights& weights, WeightFormat format,
                                       const LossMoments& moments) {
    SLUICE_ASSIGN(const MatrixFit fit, FitMatrix(weights.view(), format, moments, moments,
                                                 {.method = Method::kMse}, pool_));
    return Dequantize(fit.matrix);
  }

  // Squared errors become divergences.
  Status ShareOut() {
    std::vector<MatrixView<const float>> streams = {View(exact_)};
    for (auto& stream : streams_) streams.push_back(View(stream));
    SLUICE_ASSIGN(const Losses losses, MeasureLosses(decoder_, ids_, windows_, streams, pool_));
    for (MatrixOptions& matrix : result_) {
      double kl = 0;
      const auto& predictions = losses[matrix.layer + 1];
      for (const TokenLoss& loss : predictions) {
        kl += loss.kl / static_cast<double>(predictions.size());
      }
      const double error = probe_errors_[matrix.layer];
      for (FormatOption& option : matrix.options) {
        option.loss = error > 0 ? std::max(kl, 0.0) * option.loss / error : 0;
      }
    }
    return {};
  }

  const Decoder& decoder_;
  const SensitivityOptions& options_;
  const ThreadPool* pool_;
  std::vector<size_t> windows_;
  size_t count_ = 0;  // tokens
  std::span<const int32_t> ids_;
  std::vector<float> exact_;
  std::vector<std::vector<float>> streams_;  // with the block of each layer so far rounded
  std::vector<double> probe_errors_;
  std::vector<MatrixOptions> result_;
};

}  // namespace

Expected<std::vector<MatrixOptions>> MeasureSensitivity(const Decoder& decoder,
                                                        const Tokens& tokens,
                                                        const SensitivityOptions& options,
                                                        const ThreadPool* pool) {
  return Meter(decoder, tokens, options, pool).Run();
}

}  // namespace sluice
