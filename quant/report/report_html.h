// The report as one HTML file: no network, no scripts, light or dark, wide or narrow.
#ifndef SLUICE_QUANT_REPORT_REPORT_HTML_H_
#define SLUICE_QUANT_REPORT_REPORT_HTML_H_

#include <span>
#include <string>

#include "quant/analysis/block_report.h"
#include "quant/report/report_page.h"

namespace sluice {

// quant/report/report.html.mustache with the reports' figures in it, of one packed file or of
// several side by side. Whatever comes from outside (paths, names, warnings) is escaped.
std::string ReportHtml(std::span<const ModelReport> reports, const ReportOrigin& origin);
inline std::string ReportHtml(const ModelReport& report, const ReportOrigin& origin) {
  return ReportHtml({&report, 1}, origin);
}

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_REPORT_HTML_H_
