// Figures of the report as rows of its tables.
#ifndef SLUICE_QUANT_REPORT_PAGE_TABLES_H_
#define SLUICE_QUANT_REPORT_PAGE_TABLES_H_

#include <cstddef>
#include <vector>

#include "quant/analysis/block_report.h"
#include "quant/report/matrix_summary.h"
#include "quant/report/page_data.h"

namespace sluice {

// How many rows a table has that shows the worst of all layers; JSON has those of every layer.
inline constexpr size_t kPageTokens = 12;
inline constexpr size_t kPageNeurons = 16;
inline constexpr size_t kPagePeaks = 6;  // for each site

// Those that are information, or the others.
PageData FindingList(const ModelReport& report, bool information);
PageData TokenTable(const ModelReport& report);
PageData NeuronTable(const ModelReport& report);
PageData PeakTable(const ModelReport& report);
PageData SuperWeightList(const ModelReport& report);
PageData SummaryTable(const std::vector<SummaryRow>& rows);
PageData LayerTable(const ModelReport& report);
PageData MatrixTable(const ModelReport& report);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_PAGE_TABLES_H_
