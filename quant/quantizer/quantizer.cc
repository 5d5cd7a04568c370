#include "quant/quantizer/quantizer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "quant/quantizer/block_scale.h"
#include "src/base/half.h"
#include "src/base/status.h"
#include "src/base/thread_pool.h"
#include "src/format/layout.h"

namespace sluice {
namespace {

// Rows that a thread takes at a time: enough work to be worth a hand-over, even of 32 columns.
constexpr size_t kRowGrain = 16;

// The first row, in row order, that any thread found fault with.
class FirstRow {
 public:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  void Note(size_t row) {
    size_t seen = row_.load();
    while (row < seen && !row_.compare_exchange_weak(seen, row)) {
    }
  }
  size_t row() const { return row_.load(); }

 private:
  std::atomic<size_t> row_ = kNone;
};

// Whether `format` can hold w; what it cannot hold is refused rather than stored as infinity.
bool CanHold(WeightFormat format, float w) {
  return format.type == WeightType::kBf16 ? std::isfinite(ToFloat(ToBf16(w))) : std::isfinite(w);
}

// Names the weight of `row` that cannot be stored.
std::unexpected<Error> RefuseRow(std::span<const float> weights, size_t row, WeightFormat format) {
  const auto bad = std::ranges::find_if(weights, [=](float w) { return !CanHold(format, w); });
  const auto col = bad - weights.begin();
  if (!std::isfinite(*bad)) {
    return Fail(ErrorCode::kInvalidArgument, "the weight at row {}, column {} is {}", row, col,
                *bad);
  }
  return Fail(ErrorCode::kUnsupported,
              "the weight at row {}, column {} is {}, but bf16 holds magnitudes up to {}", row, col,
              *bad, ToFloat(Bf16{0x7F7F}));
}

// One row into integers and scales. False if a weight is not finite.
bool QuantizeRow(std::span<const float> weights, WeightFormat format, size_t block,
                 std::span<int8_t> integers, std::span<float> scales) {
  for (size_t b = 0; b < scales.size(); ++b) {
    const size_t begin = b * block;
    const size_t count = std::min(block, weights.size() - begin);
    const auto values = weights.subspan(begin, count);
    const float amax = MaxMagnitude(values);
    if (!std::isfinite(amax)) return false;
    scales[b] = ChooseScale(values, amax, format);
    EncodeWeights(values, scales[b], format.type, integers.subspan(begin, count));
  }
  return true;
}

QuantizedMatrix QuantizeIntegers(MatrixView<const float> weights, WeightFormat format,
                                 const ThreadPool* pool, FirstRow& refused) {
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = weights.rows;
  matrix.cols = weights.cols;
  matrix.integers.resize(matrix.rows * matrix.cols);
  matrix.scales.resize(matrix.rows * matrix.blocks());
  const std::span integers(matrix.integers);
  const std::span scales(matrix.scales);
  ParallelFor(pool, matrix.rows, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      if (!QuantizeRow(weights.row(r), format, matrix.block(),
                       integers.subspan(r * matrix.cols, matrix.cols),
                       scales.subspan(r * matrix.blocks(), matrix.blocks()))) {
        refused.Note(r);
        return;
      }
    }
  });
  return matrix;
}

QuantizedMatrix KeepFloats(MatrixView<const float> weights, WeightFormat format,
                           const ThreadPool* pool, FirstRow& refused) {
  std::vector<float> gathered;
  const float* plain = weights.data;
  if (weights.stride != weights.cols) {
    gathered.reserve(weights.rows * weights.cols);
    for (size_t r = 0; r < weights.rows; ++r) {
      const auto row = weights.row(r);
      gathered.insert(gathered.end(), row.begin(), row.end());
    }
    plain = gathered.data();
  }
  ParallelFor(pool, weights.rows, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      if (!CanHold(format, MaxMagnitude(weights.row(r)))) {
        refused.Note(r);
        return;
      }
    }
  });
  return EncodeFloat({plain, weights.rows * weights.cols}, weights.rows, weights.cols, format);
}

}  // namespace

Expected<QuantizedMatrix> QuantizeRtn(MatrixView<const float> weights, WeightFormat format,
                                      const ThreadPool* pool) {
  SLUICE_TRY(PackedLayout::Create(format, weights.rows, weights.cols));
  FirstRow refused;
  QuantizedMatrix matrix = format.quantized() ? QuantizeIntegers(weights, format, pool, refused)
                                              : KeepFloats(weights, format, pool, refused);
  if (refused.row() != FirstRow::kNone) {
    return RefuseRow(weights.row(refused.row()), refused.row(), format);
  }
  return matrix;
}

uint64_t CountZeroBlocks(const QuantizedMatrix& matrix) {
  return static_cast<uint64_t>(std::ranges::count(matrix.scales, 0.0f));
}

bool IsAllZero(MatrixView<const float> weights) {
  for (size_t r = 0; r < weights.rows; ++r) {
    if (MaxMagnitude(weights.row(r)) != 0.0f) return false;
  }
  return true;
}

}  // namespace sluice
