#include "quant/analysis/weight_faults.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <format>
#include <optional>
#include <string>
#include <utility>

#include "quant/analysis/metrics.h"
#include "quant/quantizer/quantizer.h"
#include "quant/quantizer/rescale.h"

namespace sluice {
namespace {

constexpr size_t kNamedPerKind = 3;
// A scale that is not above the block's largest weight over 7, and an integer of −8, can double a
// weight of the other sign's end; error compensation moves it by a few steps at most.
constexpr double kImpossibleError = 3;
constexpr double kLonelyWeight = 8;
constexpr double kLonelyWeightInRms = 25;
// Half a step rounds to zero; error compensation may add to that.
constexpr double kStepsToVanish = 1.5;
constexpr double kUnrelatedCosine = 0.5;

float LargestOf(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::fabs(v));
  return largest;
}

class FaultSearch {
 public:
  FaultSearch(Matrix matrix, MatrixView<const float> trained, const QuantizedMatrix& stored,
              std::span<const float> restored, std::span<const float> rescale)
      : matrix_(matrix),
        trained_(trained),
        stored_(stored),
        restored_(restored),
        rescale_(rescale) {}

  std::vector<Finding> Run() && {
    if (IsAllZero(trained_)) {
      Finding& finding = Add(FindingKind::kZeroMatrix, Severity::kError);
      finding.message = std::format("{}: all weights are zero in the checkpoint", Name(matrix_));
      return std::move(findings_);
    }
    FindUnrelatedRows();
    // In another matrix every weight is off; one finding says it.
    if (findings_.empty()) {
      FindImpossibleErrors();
      FindVanishedBlocks();
    }
    FindLonelyWeight();
    return std::move(findings_);
  }

 private:
  Finding& Add(FindingKind kind, Severity severity) {
    Finding& finding = findings_.emplace_back();
    finding.kind = kind;
    finding.severity = severity;
    finding.matrix = matrix_;
    return finding;
  }

  std::span<const float> StoredRow(size_t r) const {
    return restored_.subspan(r * trained_.cols, trained_.cols);
  }

  // The largest of values at `row` from `column` on, as they were rounded.
  double LargestRescaled(std::span<const float> values, size_t row, size_t column) const {
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::fabs(values[i]) * Unit(row, column + i));
    }
    return largest;
  }

  double Unit(size_t row, size_t column) const { return RescaleAt(matrix_, rescale_, row, column); }

  // The first findings of a kind are named; the first of all says how many there are.
  void SayHowMany(size_t first, size_t count) {
    if (count > 1) {
      findings_[first].message += std::format(" ({} such places in this matrix)", count);
    }
  }

  void FindUnrelatedRows() {
    size_t unrelated = 0;
    size_t rows = 0;
    for (size_t r = 0; r < trained_.rows; ++r) {
      if (LargestOf(trained_.row(r)) == 0) continue;
      ++rows;
      unrelated += Compare(trained_.row(r), StoredRow(r)).cosine() < kUnrelatedCosine ? 1 : 0;
    }
    if (2 * unrelated <= rows) return;
    Finding& finding = Add(FindingKind::kUnrelatedWeights, Severity::kError);
    finding.message = std::format(
        "{}: {} of {} rows have a cosine below {} with the checkpoint's; the file was made from "
        "other weights",
        Name(matrix_), unrelated, rows, kUnrelatedCosine);
  }

  void FindImpossibleErrors() {
    const size_t block = stored_.block();
    const size_t first = findings_.size();
    size_t count = 0;
    for (size_t r = 0; r < trained_.rows; ++r) {
      for (size_t begin = 0; begin < trained_.cols; begin += block) {
        const size_t n = std::min(block, trained_.cols - begin);
        const auto before = trained_.row(r).subspan(begin, n);
        const auto after = StoredRow(r).subspan(begin, n);
        const double largest = LargestRescaled(before, r, begin);
        if (!(LargestRescaled(after, r, begin) > (kImpossibleError - 1) * largest)) continue;
        for (size_t i = 0; i < n; ++i) {
          const double unit = Unit(r, begin + i);
          const double error =
              std::fabs(static_cast<double>(after[i]) - static_cast<double>(before[i])) * unit;
          if (!(error > kImpossibleError * largest)) continue;
          if (++count <= kNamedPerKind) AddOutlier(r, begin + i, largest / unit);
        }
      }
    }
    if (count != 0) SayHowMany(first, count);
  }

  void AddOutlier(size_t row, size_t column, double largest) {
    Finding& finding = Add(FindingKind::kOutlierWeight, Severity::kError);
    finding.row = row;
    finding.column = column;
    if (stored_.format.blocked()) finding.block = column / stored_.block();
    finding.message = std::format(
        "{} [{}, {}] is {:.4g} in the file and {:.4g} in the checkpoint, whose {} it lies in has "
        "no weight beyond {:.4g}{}",
        Name(matrix_), row, column, StoredRow(row)[column], trained_.row(row)[column],
        stored_.format.blocked() ? std::format("block of {}", stored_.block()) : "row", largest,
        matrix_ == Matrix::kDown && !rescale_.empty() ? ", rescaled to its column" : "");
  }

  // Whether rounding cannot have made zeros of weights up to `largest`.
  bool Vanished(size_t row, size_t column, double largest) const {
    if (!stored_.format.quantized()) return largest != 0;
    const float scale = std::fabs(stored_.scale(row, column));
    if (scale == 0) return largest >= kMinWeightAmax;
    return largest > kStepsToVanish * static_cast<double>(scale);
  }

  void FindVanishedBlocks() {
    const size_t block = stored_.format.blocked() ? stored_.block() : kFaultBlock;
    const size_t first = findings_.size();
    size_t count = 0;
    size_t zero_in_both = 0;
    std::optional<std::pair<size_t, size_t>> first_in_both;
    for (size_t r = 0; r < trained_.rows; ++r) {
      for (size_t begin = 0; begin < trained_.cols; begin += block) {
        const size_t n = std::min(block, trained_.cols - begin);
        if (LargestOf(StoredRow(r).subspan(begin, n)) != 0) continue;
        const float largest = LargestOf(trained_.row(r).subspan(begin, n));
        if (largest == 0) {
          if (zero_in_both++ == 0) first_in_both.emplace(r, begin);
        } else if (Vanished(r, begin,
                            LargestRescaled(trained_.row(r).subspan(begin, n), r, begin)) &&
                   ++count <= kNamedPerKind) {
          AddZeroBlock(Severity::kError, r, begin, block).message = std::format(
              "{} [{}, {}..{}] is all zero in the file; the checkpoint has weights up to {:.4g} "
              "there",
              Name(matrix_), r, begin, begin + n - 1, largest);
        }
      }
    }
    if (count != 0) SayHowMany(first, count);
    if (zero_in_both == 0) return;
    const auto [row, column] = *first_in_both;
    AddZeroBlock(Severity::kInfo, row, column, block).message = std::format(
        "{}: {} blocks of {} weights are all zero, in the checkpoint too, the first at [{}, {}]",
        Name(matrix_), zero_in_both, block, row, column);
  }

  Finding& AddZeroBlock(Severity severity, size_t row, size_t column, size_t block) {
    Finding& finding = Add(FindingKind::kZeroBlock, severity);
    finding.row = row;
    finding.column = column;
    finding.block = column / block;
    return finding;
  }

  // Of the checkpoint itself, so that a fault shows that the file shares.
  void FindLonelyWeight() {
    float largest = 0;
    float next = 0;
    size_t row = 0;
    size_t column = 0;
    double squares = 0;
    for (size_t r = 0; r < trained_.rows; ++r) {
      for (size_t c = 0; c < trained_.cols; ++c) {
        const float w = std::fabs(trained_.row(r)[c]);
        squares += static_cast<double>(w) * static_cast<double>(w);
        if (w <= next) continue;
        next = std::min(w, largest);
        if (w <= largest) continue;
        largest = w;
        row = r;
        column = c;
      }
    }
    const double count = static_cast<double>(trained_.rows) * static_cast<double>(trained_.cols);
    const double rms = std::sqrt(squares / count);
    if (largest < kLonelyWeight * next || largest < kLonelyWeightInRms * rms) return;
    Finding& finding = Add(FindingKind::kOutlierWeight, Severity::kWarning);
    finding.row = row;
    finding.column = column;
    finding.message = std::format(
        "{} [{}, {}] is {:.4g} in the checkpoint; no other weight of the matrix is beyond {:.4g}",
        Name(matrix_), row, column, trained_.row(row)[column], next);
  }

  Matrix matrix_;
  MatrixView<const float> trained_;
  const QuantizedMatrix& stored_;
  std::span<const float> restored_;
  std::span<const float> rescale_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> FindWeightFaults(Matrix matrix, MatrixView<const float> trained,
                                      const QuantizedMatrix& stored,
                                      std::span<const float> restored,
                                      std::span<const float> rescale) {
  assert(trained.rows == stored.rows && trained.cols == stored.cols);
  return FaultSearch(matrix, trained, stored, restored, rescale).Run();
}

}  // namespace sluice
