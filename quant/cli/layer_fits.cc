#include "quant/cli/layer_fits.h"

#include <algorithm>
#include <format>
#include <span>
#include <utility>

#include "quant/decoder/decoder.h"
#include "quant/decoder/losses.h"
#include "quant/decoder/tokens.h"
#include "quant/quantizer/fit_block.h"
#include "quant/quantizer/fit_stream.h"
#include "src/base/status.h"
#include "src/file/checksum.h"

namespace sluice {
namespace {

// Tokens of the text that Loss is measured on: the output matrix is as large as many layers.
constexpr size_t kLossTokens = 4096;

PerMatrix<WeightFormat> FormatsOf(const LayerInfo& info) {
  PerMatrix<WeightFormat> formats;
  for (const Matrix m : kMatrices) {
    if (info.matrices[m]) formats[m] = info.matrices[m]->format;
  }
  return formats;
}

BlockActivations ActivationsOf(const LayerInfo& info) {
  return {info.input_activations, info.hidden_activations};
}

class CalibrationFits : public LayerFits {
 public:
  CalibrationFits(const Calibration& calibration, const FitOptions& options, const ThreadPool& pool)
      : calibration_(calibration), options_(options), pool_(pool) {}

  Expected<BlockFit> Fit(const LayerInfo& info, const FfnWeights& weights) override {
    SLUICE_ASSIGN(const auto inputs, calibration_.Inputs(info.layer, info.d_model));
    if (!inputs) return Nearest(info, weights);
    const MatrixView<const float> x(inputs->data(), inputs->size() / info.d_model, info.d_model);
    return FitCalibrated(weights, FormatsOf(info), ActivationsOf(info), x, options_, &pool_);
  }

 private:
  Expected<BlockFit> Nearest(const LayerInfo& info, const FfnWeights& weights) {
    BlockFit fit;
    for (const Matrix m : kMatrices) {
      if (!info.matrices[m]) continue;
      auto result = FitMatrix(weights.matrices[m].view(), info.matrices[m]->format, {}, {},
                              {.method = Method::kRtn}, &pool_);
      if (!result) return FailIn(Name(m), result.error());
      fit.matrices[m] = *std::move(result);
      fit.matrices[m]->note = "the calibration has no inputs for this layer";
    }
    return fit;
  }

  const Calibration& calibration_;
  FitOptions options_;
  const ThreadPool& pool_;
};

class TokenFits : public LayerFits {
 public:
  static Expected<std::unique_ptr<LayerFits>> Create(const TokenFitSettings& settings,
                                                     const std::vector<LayerInfo>& layers,
                                                     const ThreadPool& pool) {
    SLUICE_ASSIGN(Decoder decoder, Decoder::Open(settings.model, settings.config));
    SLUICE_ASSIGN(Tokens tokens, ReadTokens(settings.tokens, decoder));
    const std::string job = Job(settings, tokens, layers);
    auto fits =
        std::unique_ptr<TokenFits>(new TokenFits(std::move(decoder), std::move(tokens), pool));
    SLUICE_ASSIGN(PartialResult partial,
                  PartialResult::Open(settings.partial, job, settings.resume));
    fits->partial_.emplace(std::move(partial));
    StreamOptions options;
    options.fit = settings.fit;
    SLUICE_ASSIGN(StreamFitter fitter,
                  StreamFitter::Create(fits->decoder_, fits->tokens_, options, &pool));
    fits->fitter_.emplace(std::move(fitter));
    SLUICE_TRY(fits->GoOn());
    return fits;
  }

  Expected<BlockFit> Fit(const LayerInfo& info, const FfnWeights& weights) override {
    if (info.layer < partial_->done()) return partial_->Load(info.layer);
    while (fitter_->next_layer() < info.layer) {
      SLUICE_ASSIGN(const FfnWeights skipped, decoder_.checkpoint().Load(fitter_->next_layer()));
      SLUICE_TRY(fitter_->Skip(skipped));
    }
    SLUICE_ASSIGN(BlockFit fit, fitter_->Quantize(weights, FormatsOf(info), ActivationsOf(info)));
    SLUICE_TRY(partial_->Save(info.layer, fit, fitter_->streams()));
    return fit;
  }

  Expected<std::optional<double>> Loss() override {
    while (fitter_->next_layer() < decoder_.layers()) {
      SLUICE_ASSIGN(const FfnWeights skipped, decoder_.checkpoint().Load(fitter_->next_layer()));
      SLUICE_TRY(fitter_->Skip(skipped));
    }
    const TokenGroup group = GroupWindows(tokens_, kLossTokens).front();
    const auto rows = [&](const std::vector<float>& stream) {
      return MatrixView<const float>(stream.data(), group.ids.size(), decoder_.d_model());
    };
    const Streams& streams = fitter_->streams();
    const MatrixView<const float> both[] = {rows(streams.exact), rows(streams.rounded)};
    SLUICE_ASSIGN(const Losses losses,
                  MeasureLosses(decoder_, group.ids, group.windows, both, &pool_));
    double sum = 0;
    for (const TokenLoss& loss : losses[1]) sum += loss.kl;
    return sum / static_cast<double>(std::max<size_t>(losses[1].size(), 1));
  }

 private:
  TokenFits(Decoder decoder, Tokens tokens, const ThreadPool& pool)
      : decoder_(std::move(decoder)), tokens_(std::move(tokens)), pool_(pool) {}

  // All that the result depends on, but the version of this program.
  static std::string Job(const TokenFitSettings& settings, const Tokens& tokens,
                         const std::vector<LayerInfo>& layers) {
    std::string formats;
    for (const LayerInfo& layer : layers) {
      formats += std::format("{} {} {}", layer.layer, Name(layer.input_activations),
                             Name(layer.hidden_activations));
      for (const Matrix m : kMatrices) {
        if (layer.matrices[m]) formats += " " + Name(layer.matrices[m]->format);
      }
      formats += "\n";
    }
    const auto sum = [](auto span) { return ChecksumText(Checksum(std::as_bytes(span))); };
    return std::format("{} by {}{} on tokens {} in windows of {}, formats {}", settings.model,
                       Name(settings.fit.method), settings.fit.rescale ? "" : " without rescaling",
                       sum(std::span(tokens.ids)), settings.tokens.context,
                       sum(std::span<const char>(formats)));
  }

  Status GoOn() {
    if (partial_->done() == 0) return {};
    SLUICE_ASSIGN(Streams streams, partial_->LoadStreams());
    return fitter_->Resume(partial_->done(), std::move(streams));
  }

  Decoder decoder_;
  Tokens tokens_;
  const ThreadPool& pool_;
  std::optional<PartialResult> partial_;
  std::optional<StreamFitter> fitter_;
};

}  // namespace

std::unique_ptr<LayerFits> FitsFromCalibration(const Calibration& calibration,
                                               const FitOptions& options, const ThreadPool& pool) {
  return std::make_unique<CalibrationFits>(calibration, options, pool);
}

Expected<std::unique_ptr<LayerFits>> FitsFromTokens(const TokenFitSettings& settings,
                                                    const std::vector<LayerInfo>& layers,
                                                    const ThreadPool& pool) {
  return TokenFits::Create(settings, layers, pool);
}

}  // namespace sluice
