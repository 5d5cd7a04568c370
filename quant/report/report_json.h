// The report for programs: schema "sluice.report/1" of one packed file, "sluice.reports/1" of
// several, both in quant/report/schema/report.schema.json.
#ifndef SLUICE_QUANT_REPORT_REPORT_JSON_H_
#define SLUICE_QUANT_REPORT_REPORT_JSON_H_

#include <span>
#include <string>

#include "quant/analysis/block_report.h"

namespace sluice {

// The whole JSON document, indented, ending in a line feed. What is not finite is null.
std::string ReportJson(std::span<const ModelReport> reports);
inline std::string ReportJson(const ModelReport& report) { return ReportJson({&report, 1}); }

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_REPORT_JSON_H_
