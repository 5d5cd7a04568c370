#include "quant/quantizer/compensate.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

#include "quant/linalg/dense.h"
#include "quant/quantizer/block_scale.h"
#include "quant/quantizer/lanes.h"
#include "quant/quantizer/scale_search.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

// Columns between two products with everything that was rounded before, where no blocks of weights
// ask for other numbers.
constexpr size_t kGroup = 32;

// kLaneRows rows of a matrix.
class RowGroup {
 public:
  RowGroup(const ErrorFactor& factor, MatrixView<const float> target, size_t first_row,
           QuantizedMatrix& matrix)
      : f_(factor),
        matrix_(matrix),
        first_row_(first_row),
        grid_(matrix.format.type),
        target_(factor.n),
        error_(factor.n),
        scales_(matrix.blocks()) {
    for (size_t r = 0; r < target.rows; ++r) {
      for (size_t p = 0; p < f_.n; ++p)
        target_[p][r] = target.data[r * target.stride + f_.order[p]];
      for (size_t b = 0; b < scales_.size(); ++b) {
        scales_[b][r] = matrix.scales[(first_row + r) * scales_.size() + b];
      }
    }
    rows_ = target.rows;
  }

  void Run(Scales scales) {
    for (size_t end = f_.n; end > 0;) {
      const size_t block = f_.order[end - 1] / matrix_.block();
      const size_t begin =
          scales == Scales::kSearch ? BlockBegin(end) : end - std::min(kGroup, end);
      MakeUp(begin, end);
      if (scales == Scales::kSearch) Search(begin, end, block);
      RoundGroup(begin, end);
      end = begin;
    }
    for (size_t r = 0; r < rows_; ++r) {
      for (size_t b = 0; b < scales_.size(); ++b) {
        matrix_.scales[(first_row_ + r) * scales_.size() + b] = scales_[b][r];
      }
    }
  }

 private:
  // Where the positions of the block that ends at `end` begin.
  size_t BlockBegin(size_t end) const {
    const size_t block = f_.order[end - 1] / matrix_.block();
    size_t begin = end - 1;
    while (begin > 0 && f_.order[begin - 1] / matrix_.block() == block) --begin;
    return begin;
  }

  // Into base_: what positions [begin, end) should be to make up for the errors after them.
  void MakeUp(size_t begin, size_t end) {
    base_.assign(target_.begin() + static_cast<ptrdiff_t>(begin),
                 target_.begin() + static_cast<ptrdiff_t>(end));
    const size_t count = end - begin;
    const size_t done = f_.n - end;
    if (done == 0) return;
    const MatrixView<const float> feedback(f_.feedback.data() + end * f_.n + begin, done, count,
                                           f_.n);
    Multiply(1, feedback, Transpose::kYes, {error_[end].v.data(), done, kLaneRows}, Transpose::kNo,
             1, {base_[0].v.data(), count, kLaneRows});
  }

  // What feedback from [i + 1, size) of the group adds to its position i.
  void AddFeedback(size_t begin, size_t i, size_t size, const std::vector<Lanes>& errors,
                   Lanes& sum) const {
    for (size_t k = i + 1; k < size; ++k) {
      const float weight = f_.feedback[(begin + k) * f_.n + begin + i];
      for (size_t r = 0; r < kLaneRows; ++r) sum.v[r] += weight * errors[k].v[r];
    }
  }

  // The loss of the group with one scale for each row.
  Lanes Loss(size_t begin, const Lanes& scale) {
    const size_t size = base_.size();
    Lanes inverse;
    for (size_t r = 0; r < kLaneRows; ++r) inverse[r] = InverseScale(scale[r]);
    trial_.resize(size);
    Lanes loss;
    for (size_t i = size; i-- > 0;) {
      Lanes wanted = base_[i];
      AddFeedback(begin, i, size, trial_, wanted);
      const float stiffness = f_.stiffness[begin + i];
      const Lanes& target = target_[begin + i];
      for (size_t r = 0; r < kLaneRows; ++r) {
        const float value = grid_.Nearest(wanted.v[r] * inverse.v[r]) * scale.v[r];
        const float miss = wanted.v[r] - value;
        loss.v[r] += stiffness * miss * miss;
        trial_[i].v[r] = target.v[r] - value;
      }
    }
    return loss;
  }

  void Search(size_t begin, size_t end, size_t block) {
    Lanes extreme;
    for (const Lanes& column : base_) {
      for (size_t r = 0; r < kLaneRows; ++r) {
        if (std::fabs(column[r]) > std::fabs(extreme[r])) extreme[r] = column[r];
      }
    }
    Lanes best;
    best.v.fill(std::numeric_limits<float>::infinity());
    Lanes chosen;
    const auto consider = [&](const Lanes& scale) {
      const Lanes loss = Loss(begin, scale);
      for (size_t r = 0; r < kLaneRows; ++r) {
        if (!(loss[r] < best[r])) continue;
        best[r] = loss[r];
        chosen[r] = scale[r];
      }
    };
    // First the scale that gives a block back bit for bit which is a multiple of something.
    consider(PlainScales(end - begin));
    for (const float multiple : ExtremeMultiples(matrix_.format.type)) {
      Lanes scale;
      for (size_t r = 0; r < rows_; ++r) {
        scale[r] = CandidateScale(extreme[r], multiple, matrix_.format);
      }
      consider(scale);
    }
    scales_[block] = chosen;
  }

  Lanes PlainScales(size_t size) const {
    Lanes scales;
    std::vector<float> values(size);
    for (size_t r = 0; r < rows_; ++r) {
      for (size_t i = 0; i < size; ++i) values[i] = base_[i][r];
      const float amax = MaxMagnitude(values);
      if (std::isfinite(amax)) scales[r] = ChooseScale(values, amax, matrix_.format);
    }
    return scales;
  }

  void RoundGroup(size_t begin, size_t end) {
    for (size_t p = end; p-- > begin;) {
      Lanes wanted = base_[p - begin];
      for (size_t k = p + 1; k < end; ++k) {
        const float weight = f_.feedback[k * f_.n + p];
        for (size_t r = 0; r < kLaneRows; ++r) wanted.v[r] += weight * error_[k].v[r];
      }
      const size_t column = f_.order[p];
      const Lanes& scale = scales_[column / matrix_.block()];
      Lanes integer;
      for (size_t r = 0; r < kLaneRows; ++r) {
        integer.v[r] = grid_.Nearest(wanted.v[r] * InverseScale(scale.v[r]));
        error_[p].v[r] = target_[p].v[r] - integer.v[r] * scale.v[r];
      }
      for (size_t r = 0; r < rows_; ++r) {
        matrix_.integers[(first_row_ + r) * f_.n + column] = static_cast<int8_t>(integer[r]);
      }
    }
  }

  const ErrorFactor& f_;
  QuantizedMatrix& matrix_;
  size_t first_row_;
  size_t rows_ = 0;
  IntegerGrid grid_;
  std::vector<Lanes> target_;  // by position
  std::vector<Lanes> error_;   // by position: target − value
  std::vector<Lanes> scales_;  // by block
  std::vector<Lanes> base_;    // of the group
  std::vector<Lanes> trial_;   // errors of the group
};

}  // namespace

void RoundCompensated(const ErrorFactor& factor, MatrixView<const float> target, Scales scales,
                      QuantizedMatrix& matrix, const ThreadPool* pool) {
  assert(target.cols == factor.n && matrix.rows == target.rows && matrix.cols == target.cols);
  ParallelFor(pool, target.rows, kLaneRows, [&](size_t begin, size_t end) {
    RowGroup(factor, target.Rows(begin, end - begin), begin, matrix).Run(scales);
  });
}

}  // namespace sluice
