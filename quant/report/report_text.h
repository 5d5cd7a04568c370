// The report for a terminal.
#ifndef SLUICE_QUANT_REPORT_REPORT_TEXT_H_
#define SLUICE_QUANT_REPORT_REPORT_TEXT_H_

#include <string>

#include "quant/analysis/block_report.h"

namespace sluice {

// Verdict, tables of layers and matrices, warnings; plain text, up to about 110 columns.
std::string ReportText(const ModelReport& report);

// The verdict and the largest figures only, for the end of `sluice quantize`.
std::string ReportVerdictText(const ModelReport& report);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_REPORT_TEXT_H_
