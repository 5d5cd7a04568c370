#include "quant/report/report_html.h"

#include <kainjow/mustache.hpp>

#include "quant/report/page_data.h"

namespace sluice {

// Files of this folder, embedded when the program is built.
extern const char kReportTemplate[];
extern const char kChartTemplate[];
extern const char kReportStyle[];

std::string ReportHtml(std::span<const ModelReport> reports, const ReportOrigin& origin) {
  using kainjow::mustache::partial;
  PageData page = ReportPage(reports, origin);
  page.set("style", PageData(partial([] { return std::string(kReportStyle); })));
  page.set("chart", PageData(partial([] { return std::string(kChartTemplate); })));
  return kainjow::mustache::mustache(kReportTemplate).render(page);
}

}  // namespace sluice
