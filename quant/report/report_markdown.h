// The report as Markdown, for an issue or a README: GitHub's dialect, for its tables.
#ifndef SLUICE_QUANT_REPORT_REPORT_MARKDOWN_H_
#define SLUICE_QUANT_REPORT_REPORT_MARKDOWN_H_

#include <span>
#include <string>

#include "quant/analysis/block_report.h"
#include "quant/report/report_page.h"

namespace sluice {

// quant/report/report.md.mustache with the same figures as the page. Whatever comes from outside is
// escaped, so that it can be neither markup nor HTML.
std::string ReportMarkdown(std::span<const ModelReport> reports, const ReportOrigin& origin);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_REPORT_MARKDOWN_H_
