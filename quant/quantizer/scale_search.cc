#include "quant/quantizer/scale_search.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quant/quantizer/block_scale.h"
#include "quant/quantizer/quantizer.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

constexpr float kInt4Multiples[] = {5.0f,  5.5f,  6.0f,  6.4f,  6.7f,  7.0f,  7.3f,  7.6f,
                                    8.0f,  8.5f,  9.0f,  -6.0f, -6.5f, -7.0f, -7.4f, -7.7f,
                                    -8.0f, -8.3f, -8.6f, -9.0f, -9.5f, -10.0f};
constexpr float kInt8Multiples[] = {112, 118, 122, 124, 125.5f, 127, 128.5f, 130, 132, 136, 142};

// Rows that a thread takes at a time.
constexpr size_t kRowGrain = 16;
// Least squares for fixed integers, then integers for that scale: two rounds reach a fixed point in
// nearly every block.
constexpr int kRefinements = 2;

// One block while its scale is searched.
class BlockSearch {
 public:
  BlockSearch(std::span<const float> values, std::span<const float> importance, WeightFormat format)
      : values_(values), importance_(importance), format_(format), trial_(values.size()) {}

  // Takes the scale if it is better than the best one so far.
  void Try(float scale, float& best_scale, std::span<int8_t> best) {
    if (scale == 0.0f || !std::isfinite(scale * static_cast<float>(MinInteger(format_.type)))) {
      return;
    }
    EncodeWeights(values_, scale, format_.type, trial_);
    const double loss = Loss(scale, trial_);
    if (loss >= best_loss_) return;
    best_loss_ = loss;
    best_scale = scale;
    std::ranges::copy(trial_, best.begin());
  }

  void Start(float scale, std::span<const int8_t> integers) { best_loss_ = Loss(scale, integers); }

  // The scale with which `integers` fit best.
  float BestScale(std::span<const int8_t> integers) const {
    double product = 0;
    double square = 0;
    for (size_t k = 0; k < values_.size(); ++k) {
      const double q = integers[k];
      product += importance_[k] * q * values_[k];
      square += importance_[k] * q * q;
    }
    return square > 0 ? StoredScale(static_cast<float>(product / square), format_) : 0.0f;
  }

 private:
  double Loss(float scale, std::span<const int8_t> integers) const {
    double loss = 0;
    for (size_t k = 0; k < values_.size(); ++k) {
      const float error = values_[k] - scale * static_cast<float>(integers[k]);
      loss += static_cast<double>(importance_[k]) * error * error;
    }
    return loss;
  }

  std::span<const float> values_;
  std::span<const float> importance_;
  WeightFormat format_;
  std::vector<int8_t> trial_;
  double best_loss_ = 0;
};

float SignedExtreme(std::span<const float> values) {
  return *std::ranges::max_element(values, {}, [](float v) { return std::fabs(v); });
}

void SearchBlock(std::span<const float> values, std::span<const float> importance,
                 WeightFormat format, float& scale, std::span<int8_t> integers) {
  BlockSearch search(values, importance, format);
  search.Start(scale, integers);
  const float extreme = SignedExtreme(values);
  for (const float multiple : ExtremeMultiples(format.type)) {
    search.Try(CandidateScale(extreme, multiple, format), scale, integers);
  }
  for (int i = 0; i < kRefinements; ++i) search.Try(search.BestScale(integers), scale, integers);
}

// Inputs that calibration never saw may come all the same.
std::vector<float> Importance(std::span<const float> energy) {
  constexpr double kFloor = 1e-3;  // of the mean
  double mean = 0;
  for (const float e : energy) mean += e / static_cast<double>(energy.size());
  std::vector<float> importance;
  importance.reserve(energy.size());
  for (const float e : energy) importance.push_back(std::max(e, static_cast<float>(kFloor * mean)));
  return importance;
}

}  // namespace

std::span<const float> ExtremeMultiples(WeightType type) {
  if (type == WeightType::kInt4) return kInt4Multiples;
  return kInt8Multiples;
}

float CandidateScale(float extreme, float multiple, WeightFormat format) {
  return std::fabs(extreme) < kMinWeightAmax ? 0.0f : StoredScale(extreme / multiple, format);
}

void SearchScales(MatrixView<const float> weights, const LossMoments& moments,
                  QuantizedMatrix& matrix, const ThreadPool* pool) {
  std::vector<float> energy;
  energy.reserve(moments.n);
  for (size_t k = 0; k < moments.n; ++k) energy.push_back(moments.second[k * moments.n + k]);
  SearchScales(weights, energy, matrix, pool);
}

void SearchScales(MatrixView<const float> weights, std::span<const float> energy,
                  QuantizedMatrix& matrix, const ThreadPool* pool) {
  const size_t n = weights.cols;
  const std::vector<float> importance = Importance(energy);
  ParallelFor(pool, weights.rows, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      for (size_t b = 0; b < matrix.blocks(); ++b) {
        const size_t first = b * matrix.block();
        const size_t count = std::min(matrix.block(), n - first);
        SearchBlock(weights.row(r).subspan(first, count),
                    std::span(importance).subspan(first, count), matrix.format,
                    matrix.scales[r * matrix.blocks() + b],
                    std::span(matrix.integers).subspan(r * n + first, count));
      }
    }
  });
}

}  // namespace sluice
