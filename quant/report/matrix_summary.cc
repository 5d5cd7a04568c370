#include "quant/report/matrix_summary.h"

#include <algorithm>
#include <format>

#include "quant/report/numbers.h"
#include "quant/report/text_table.h"

namespace sluice {
namespace {

void AddTo(SummaryRow& row, size_t layer, const MatrixReport& matrix) {
  const double weights = static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  const auto layers_before = static_cast<double>(row.layers.size());
  const double weights_before = row.bits_per_weight == 0 ? 0 : 8 * row.bytes / row.bits_per_weight;
  row.bytes += matrix.bits_per_weight * weights / 8;
  row.bits_per_weight = 8 * row.bytes / (weights_before + weights);
  row.rmse_mean =
      (row.rmse_mean * layers_before + matrix.weight_relative_rmse) / (layers_before + 1);
  if (row.layers.empty() || matrix.weight_relative_rmse > row.rmse_max) {
    row.rmse_max = matrix.weight_relative_rmse;
    row.rmse_max_layer = layer;
  }
  row.max_abs_error = std::max(row.max_abs_error, matrix.weight_max_abs_error);
  row.zero_blocks += matrix.zero_blocks;
  row.layers.push_back(layer);
}

bool IsFallback(const MatrixReport& matrix) { return matrix.method != matrix.requested_method; }

}  // namespace

std::vector<MatricesOfLayer> MatricesOf(const ModelReport& report) {
  std::vector<MatricesOfLayer> layers;
  layers.reserve(report.layers.size());
  for (const LayerReport& layer : report.layers) layers.push_back({layer.layer, layer.matrices});
  return layers;
}

std::vector<SummaryRow> Summarize(std::span<const MatricesOfLayer> layers) {
  std::vector<SummaryRow> rows;
  for (const Matrix m : kMatrices) {
    for (const MatricesOfLayer& layer : layers) {
      const std::optional<MatrixReport>& matrix = layer.matrices[m];
      if (!matrix) continue;
      auto row = std::ranges::find_if(rows, [&](const SummaryRow& r) {
        return r.matrix == m && r.requested == matrix->requested && r.format == matrix->format &&
               r.method == matrix->method && r.fallback == IsFallback(*matrix);
      });
      if (row == rows.end()) {
        row = rows.insert(rows.end(), SummaryRow());
        row->matrix = m;
        row->requested = matrix->requested;
        row->format = matrix->format;
        row->method = matrix->method;
        row->fallback = IsFallback(*matrix);
      }
      AddTo(*row, layer.layer, *matrix);
    }
  }
  return rows;
}

std::string SummaryText(std::span<const SummaryRow> rows) {
  TextTable table({{"matrix", Align::kLeft},
                   {"layers", Align::kLeft},
                   {"requested", Align::kLeft},
                   {"stored as", Align::kLeft},
                   {"method", Align::kLeft},
                   {"bits/weight"},
                   {"size"},
                   {"weight error"},
                   {"worst layer", Align::kLeft},
                   {"max |error|"},
                   {"zero blocks"}});
  for (const SummaryRow& row : rows) {
    const bool same = row.requested == row.format;
    table.AddRow({std::string(Name(row.matrix)), Ranges(row.layers), Name(row.requested),
                  Name(row.format) + (same ? "" : "  (not as requested)"),
                  row.method + (row.fallback ? "  (not as requested)" : ""),
                  Significant(row.bits_per_weight, 4), Size(row.bytes), Percent(row.rmse_mean),
                  std::format("{}: {}", row.rmse_max_layer, Percent(row.rmse_max)),
                  Significant(row.max_abs_error), Grouped(row.zero_blocks)});
  }
  return table.Text();
}

}  // namespace sluice
