#include "quant/decoder/losses.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/linalg/matrix_product.h"
#include "src/base/status.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

using Row = Eigen::Map<const Eigen::ArrayXf>;

// Predictions whose logits for one slice of the vocabulary are in memory together, per thread.
constexpr size_t kTileRows = 64;

// What is known of one prediction's softmax after a part of the vocabulary.
struct SoftmaxSums {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;  // Σ e^(logit − max)
  size_t top = 0;  // the first token with the largest logit
  double target = 0;
  // Σ e^(logit of the first stream − cross_max) · (that logit − this stream's).
  double cross = 0;
  double cross_max = -std::numeric_limits<double>::infinity();
};

class LossBuilder {
 public:
  LossBuilder(const Decoder& decoder, std::span<const int32_t> ids, std::span<const size_t> windows,
              std::span<const MatrixView<const float>> streams, const ThreadPool* pool)
      : decoder_(decoder), streams_(streams), pool_(pool) {
    for (size_t first = 0; const size_t length : windows) {
      for (size_t i = 0; i + 1 < length; ++i) {
        rows_.push_back(first + i);
        targets_.push_back(static_cast<size_t>(ids[first + i + 1]));
      }
      first += length;
    }
    sums_.assign(streams.size(), std::vector<SoftmaxSums>(rows_.size()));
  }

  Status Run(const std::function<void()>& progress) {
    return decoder_.ForVocabulary([&](size_t first, MatrixView<const float> weights) {
      AddSlice(first, weights);
      if (progress) progress();
    });
  }

  Losses Finish() const {
    Losses losses(streams_.size(), std::vector<TokenLoss>(rows_.size()));
    for (size_t s = 0; s < streams_.size(); ++s) {
      for (size_t i = 0; i < rows_.size(); ++i) losses[s][i] = Finish(sums_[0][i], sums_[s][i]);
    }
    return losses;
  }

 private:
  void AddSlice(size_t first, MatrixView<const float> weights) {
    ParallelFor(pool_, rows_.size(), kTileRows, [&](size_t begin, size_t end) {
      std::vector<float> reference((end - begin) * weights.rows);
      std::vector<float> other(streams_.size() > 1 ? reference.size() : 0);
      for (size_t s = 0; s < streams_.size(); ++s) {
        std::vector<float>& logits = s == 0 ? reference : other;
        Logits(streams_[s], begin, end, weights, logits);
        for (size_t i = begin; i < end; ++i) {
          const auto n = static_cast<Eigen::Index>(weights.rows);
          const size_t at = (i - begin) * weights.rows;
          const Row mine(logits.data() + at, n);
          AddCross(s, i, Row(reference.data() + at, n), mine);
          AddLogits(s, i, first, mine);
        }
      }
    });
  }

  // The normed rows are made anew for each slice: a little work beside the product, and no second
  // copy of the streams.
  void Logits(MatrixView<const float> stream, size_t begin, size_t end,
              MatrixView<const float> weights, std::vector<float>& out) const {
    std::vector<float> normed((end - begin) * stream.cols);
    const MatrixView<float> x(normed.data(), end - begin, stream.cols);
    for (size_t i = begin; i < end; ++i) {
      decoder_.FinalNorm(stream.Rows(rows_[i], 1), x.Rows(i - begin, 1), nullptr);
    }
    MultiplyTransposed(x, weights, {}, {out.data(), x.rows, weights.rows}, nullptr);
    decoder_.CapLogits(out);
  }

  // The divergence's sum, under the maximum that the first stream has so far. The first stream's
  // own sums have moved on to this slice's maximum already.
  void AddCross(size_t s, size_t i, const Row& reference, const Row& mine) {
    if (s == 0) return;
    SoftmaxSums& sums = sums_[s][i];
    const double max = sums_[0][i].max;
    const auto shares = (reference - static_cast<float>(max)).exp();
    sums.cross *= std::exp(sums.cross_max - max);
    sums.cross += (shares * (reference - mine)).template cast<double>().sum();
    sums.cross_max = max;
  }

  void AddLogits(size_t s, size_t i, size_t first, const Row& logits) {
    SoftmaxSums& sums = sums_[s][i];
    Eigen::Index at = 0;
    const double max = logits.maxCoeff(&at);
    if (max > sums.max) {
      sums.sum *= std::exp(sums.max - max);
      sums.max = max;
      sums.top = first + static_cast<size_t>(at);
    }
    sums.sum += (logits - static_cast<float>(sums.max)).exp().cast<double>().sum();
    if (targets_[i] >= first && targets_[i] < first + static_cast<size_t>(logits.size())) {
      sums.target = logits[static_cast<Eigen::Index>(targets_[i] - first)];
    }
  }

  static TokenLoss Finish(const SoftmaxSums& reference, const SoftmaxSums& mine) {
    const auto log_sum = [](const SoftmaxSums& s) { return s.max + std::log(s.sum); };
    TokenLoss loss;
    loss.nll = log_sum(mine) - mine.target;
    if (&mine != &reference) {
      const double kl = mine.cross / reference.sum - log_sum(reference) + log_sum(mine);
      loss.kl = kl < 0 ? 0 : kl;  // rounding may leave a little less than nothing of equals
    }
    loss.top = mine.top;
    loss.same_top = mine.top == reference.top;
    return loss;
  }

  const Decoder& decoder_;
  std::span<const MatrixView<const float>> streams_;
  const ThreadPool* pool_;
  std::vector<size_t> rows_;     // of the streams, by prediction
  std::vector<size_t> targets_;  // the tokens that follow
  std::vector<std::vector<SoftmaxSums>> sums_;
};

}  // namespace

Expected<Losses> MeasureLosses(const Decoder& decoder, std::span<const int32_t> ids,
                               std::span<const size_t> windows,
                               std::span<const MatrixView<const float>> streams,
                               const ThreadPool* pool, const std::function<void()>& progress) {
  LossBuilder builder(decoder, ids, windows, streams, pool);
  SLUICE_TRY(builder.Run(progress));
  return builder.Finish();
}

}  // namespace sluice
