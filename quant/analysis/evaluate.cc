#include "quant/analysis/evaluate.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <limits>
#include <utility>

#include "quant/analysis/accounting.h"
#include "quant/decoder/float_block.h"
#include "quant/decoder/losses.h"
#include "src/base/status.h"
#include "src/file/model_impl.h"

namespace sluice {
namespace {

// NaN is the largest, so that no statistic hides one.
bool LessOrNan(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

DivergenceReport Summarize(std::vector<double> values) {
  DivergenceReport report;
  for (const double v : values) report.mean += v;
  report.mean /= static_cast<double>(values.size());
  const auto nth = [&](double share) {
    const auto rank = std::ceil(share * static_cast<double>(values.size()));
    const auto at = values.begin() + std::max<ptrdiff_t>(0, static_cast<ptrdiff_t>(rank) - 1);
    std::ranges::nth_element(values, at, LessOrNan);
    return *at;
  };
  report.median = nth(0.5);
  report.p99 = nth(0.99);
  report.max = nth(1);
  return report;
}

class Evaluator {
 public:
  Evaluator(const Decoder& decoder, std::span<const Model> files, const Tokens& tokens,
            const EvaluateOptions& options)
      : decoder_(decoder), files_(files), tokens_(tokens), options_(options) {}

  Expected<Evaluation> Run(size_t context) {
    SLUICE_TRY(Check());
    const std::vector<TokenGroup> groups = GroupWindows(tokens_, MostTokens());
    all_steps_ = groups.size() * (decoder_.layers() + decoder_.vocabulary_slices());
    losses_.resize(1 + files_.size());
    for (const TokenGroup& group : groups) SLUICE_TRY(RunGroup(group));
    return Finish(context);
  }

 private:
  Status Check() const {
    if (tokens_.predictions() == 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: nothing is predicted: every window has a single token", tokens_.source);
    }
    for (const Model& file : files_) {
      for (const LayerInfo& layer : file.layers()) {
        if (layer.layer >= decoder_.layers() || layer.d_model != decoder_.d_model()) {
          return Fail(ErrorCode::kInvalidArgument,
                      "{}: layer {} is {} wide, but {} has {} layers, {} wide", file.path(),
                      layer.layer, layer.d_model, decoder_.checkpoint().path(), decoder_.layers(),
                      decoder_.d_model());
        }
      }
    }
    return {};
  }

  size_t MostTokens() const {
    // A stream's row, and what is kept of its prediction.
    constexpr size_t kSums = 64;
    const size_t token = (decoder_.d_model() * sizeof(float) + kSums) * (1 + files_.size());
    return std::max<size_t>(1, options_.stream_bytes / token);
  }

  void Step(const std::string& what) {
    ++steps_;
    if (options_.progress) options_.progress(steps_, all_steps_, what);
  }

  Status RunGroup(const TokenGroup& group) {
    const size_t size = group.ids.size() * decoder_.d_model();
    std::vector<std::vector<float>> streams(1 + files_.size(), std::vector<float>(size));
    std::vector<MatrixView<float>> views;
    std::vector<MatrixView<const float>> finished;
    for (std::vector<float>& stream : streams) {
      views.emplace_back(stream.data(), group.ids.size(), decoder_.d_model());
      finished.emplace_back(views.back());
    }
    SLUICE_TRY(decoder_.Embed(group.ids, views.front()));
    for (size_t s = 1; s < streams.size(); ++s) streams[s] = streams.front();
    for (size_t layer = 0; layer < decoder_.layers(); ++layer) {
      SLUICE_TRY(RunLayer(layer, group.windows, views));
      Step(std::format("layer {}", layer));
    }
    SLUICE_ASSIGN(const Losses losses, MeasureLosses(decoder_, group.ids, group.windows, finished,
                                                     options_.pool, [&] { Step("logits"); }));
    for (size_t s = 0; s < streams.size(); ++s) {
      losses_[s].insert(losses_[s].end(), losses[s].begin(), losses[s].end());
    }
    return {};
  }

  Status RunLayer(size_t index, std::span<const size_t> windows,
                  const std::vector<MatrixView<float>>& streams) {
    SLUICE_ASSIGN(const DecoderLayer layer, decoder_.Layer(index));
    SLUICE_ASSIGN(const FfnWeights weights, decoder_.checkpoint().Load(index));
    for (size_t s = 0; s < streams.size(); ++s) {
      layer.AddAttention(windows, streams[s], options_.pool);
      const Model* file = s == 0 ? nullptr : &files_[s - 1];
      if (file != nullptr && std::ranges::contains(file->layers(), index, &LayerInfo::layer)) {
        SLUICE_TRY(AddPackedBlock(layer, *file, index, streams[s]));
      } else {
        AddFloatBlock(layer, weights, streams[s], options_.pool);
      }
    }
    return {};
  }

  Status AddPackedBlock(const DecoderLayer& layer, const Model& file, size_t index,
                        MatrixView<float> stream) const {
    SLUICE_ASSIGN(const Ffn ffn, file.Layer(index, {.pool = options_.pool}));
    const size_t most = std::min(stream.rows, kBlockRows);
    SLUICE_ASSIGN(Workspace workspace, ffn.Plan(most));
    std::vector<float> input(most * stream.cols), output(input.size());
    for (size_t first = 0; first < stream.rows; first += most) {
      const MatrixView<float> rows = stream.Rows(first, std::min(most, stream.rows - first));
      const MatrixView<float> x(input.data(), rows.rows, rows.cols);
      const MatrixView<float> y(output.data(), rows.rows, rows.cols);
      layer.BlockInput(rows, x, options_.pool);
      SLUICE_TRY(ffn.Forward(x, y, workspace));
      layer.AddBlockOutput(y, rows, options_.pool);
    }
    SLUICE_ASSIGN(const BlockView packed, file.impl().Block(index));
    for (const PackedMatrixView& matrix : packed.matrices.items) file.impl().Release(matrix);
    return {};
  }

  double Perplexity(const std::vector<TokenLoss>& losses) const {
    double sum = 0;
    for (const TokenLoss& loss : losses) sum += loss.nll;
    return std::exp(sum / static_cast<double>(losses.size()));
  }

  Evaluation Finish(size_t context) const {
    Evaluation evaluation{.model = decoder_.checkpoint().path(),
                          .source = tokens_.source,
                          .tokens = tokens_.ids.size(),
                          .predictions = tokens_.predictions(),
                          .context = context,
                          .fp32_perplexity = Perplexity(losses_.front()),
                          .files = {}};
    for (size_t f = 0; f < files_.size(); ++f) {
      evaluation.files.push_back(FinishFile(files_[f], losses_[f + 1]));
    }
    return evaluation;
  }

  FileEvaluation FinishFile(const Model& file, const std::vector<TokenLoss>& losses) const {
    FileEvaluation result;
    result.file = file.path();
    result.bits_per_weight = Account(file.layers()).bits_per_weight();
    result.layers = file.layers().size();
    result.perplexity = Perplexity(losses);
    std::vector<double> divergences;
    for (const TokenLoss& loss : losses) {
      divergences.push_back(loss.kl);
      result.top1_agreement += loss.same_top ? 1.0 : 0.0;
    }
    result.top1_agreement /= static_cast<double>(losses.size());
    result.per_position = ByPosition(divergences);
    result.kl = Summarize(std::move(divergences));
    return result;
  }

  std::vector<double> ByPosition(const std::vector<double>& values) const {
    std::vector<double> sums(tokens_.longest_window() - 1);
    std::vector<size_t> counts(sums.size());
    for (size_t at = 0; const size_t length : tokens_.windows) {
      for (size_t i = 0; i + 1 < length; ++i, ++at) {
        sums[i] += values[at];
        ++counts[i];
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] /= static_cast<double>(counts[i]);
    return sums;
  }

  const Decoder& decoder_;
  std::span<const Model> files_;
  const Tokens& tokens_;
  const EvaluateOptions& options_;
  std::vector<std::vector<TokenLoss>> losses_;  // of FP32, then of each file; all groups
  size_t steps_ = 0;
  size_t all_steps_ = 0;
};

}  // namespace

Expected<Evaluation> Evaluate(const Decoder& decoder, std::span<const Model> files,
                              const Tokens& tokens, size_t context,
                              const EvaluateOptions& options) {
  return Evaluator(decoder, files, tokens, options).Run(context);
}

}  // namespace sluice
