// Everything that the report's templates show.
#ifndef SLUICE_QUANT_REPORT_REPORT_PAGE_H_
#define SLUICE_QUANT_REPORT_REPORT_PAGE_H_

#include <span>
#include <string>

#include "quant/analysis/block_report.h"
#include "quant/report/page_data.h"

namespace sluice {

// How the report came about, for its section on reproducing it.
struct ReportOrigin {
  std::string command;  // as it would be typed into a shell
  std::string version;  // of sluice
};

// Of one or more packed files of the same checkpoint, at least one.
PageData ReportPage(std::span<const ModelReport> reports, const ReportOrigin& origin);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_REPORT_PAGE_H_
