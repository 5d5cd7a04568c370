// One row for each kind of matrix and format: what was asked for, what was stored, what it cost.
#ifndef SLUICE_QUANT_REPORT_MATRIX_SUMMARY_H_
#define SLUICE_QUANT_REPORT_MATRIX_SUMMARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/analysis/block_report.h"
#include "sluice/format.h"

namespace sluice {

struct MatricesOfLayer {
  size_t layer = 0;
  PerMatrix<std::optional<MatrixReport>> matrices;
};
std::vector<MatricesOfLayer> MatricesOf(const ModelReport& report);

// All layers whose `matrix` has the same requested and the same stored format, and the same method.
struct SummaryRow {
  Matrix matrix = Matrix::kGate;
  WeightFormat requested;
  WeightFormat format;
  std::string method;     // empty: not known
  bool fallback = false;  // it is not the requested one
  std::vector<size_t> layers;
  double bytes = 0;
  double bits_per_weight = 0;
  double rmse_mean = 0;  // of weight_relative_rmse
  double rmse_max = 0;
  size_t rmse_max_layer = 0;
  double max_abs_error = 0;
  uint64_t zero_blocks = 0;
};

// Gate, up, down; within each, formats in the order of their first layer.
std::vector<SummaryRow> Summarize(std::span<const MatricesOfLayer> layers);

// The rows as a table for a terminal. A stored format that differs from the requested one is
// marked.
std::string SummaryText(std::span<const SummaryRow> rows);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_MATRIX_SUMMARY_H_
