// The report for a terminal.
#ifndef SLUICE_QUANT_REPORT_REPORT_TEXT_H_
#define SLUICE_QUANT_REPORT_REPORT_TEXT_H_

#include <string>

#include "quant/analysis/accounting.h"
#include "quant/analysis/block_report.h"

namespace sluice {

// Verdict, tables of layers and matrices, warnings; plain text, up to about 110 columns.
std::string ReportText(const ModelReport& report);

// The verdict and the largest figures only, for the end of `sluice quantize`.
std::string ReportVerdictText(const ModelReport& report);

// For the end of a `sluice quantize` that made no report: the size, and loud words about a source
// that was quantized before.
std::string SizeVerdictText(const FfnTotals& stored, const SourceReport& source);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_REPORT_TEXT_H_
