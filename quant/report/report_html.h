// The report as one HTML file: no network, no scripts, light or dark, wide or narrow.
#ifndef SLUICE_QUANT_REPORT_REPORT_HTML_H_
#define SLUICE_QUANT_REPORT_REPORT_HTML_H_

#include <string>

#include "quant/analysis/block_report.h"

namespace sluice {

// How the report came about, for its section on reproducing it.
struct ReportOrigin {
  std::string command;  // as it would be typed into a shell
  std::string version;  // of sluice
};

// quant/report/report.html.mustache with the report's figures in it. Whatever comes from outside
// (paths, names, warnings) is escaped.
std::string ReportHtml(const ModelReport& report, const ReportOrigin& origin);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_REPORT_HTML_H_
