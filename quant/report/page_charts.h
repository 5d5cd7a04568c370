// Figures of the report as what its charts draw: positions, lengths, colour classes.
#ifndef SLUICE_QUANT_REPORT_PAGE_CHARTS_H_
#define SLUICE_QUANT_REPORT_PAGE_CHARTS_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "quant/analysis/block_report.h"
#include "quant/report/page_data.h"

namespace sluice {

// One line of a chart over layers.
struct Curve {
  std::string name;
  size_t color = 0;
  std::vector<double> values;  // NaN: the layer has none
};

// For chart.svg.mustache. The scale is logarithmic; what is 0 lies at the bottom. `layers` are the
// checkpoint's numbers, as many as every curve has values. A value of the first curve that is not
// finite marks its layer.
PageData LineChart(const std::string& title, const std::vector<size_t>& layers,
                   const std::vector<Curve>& curves);

// The output error of every layer: of one file with that of each part alone, of several beside each
// other.
PageData ErrorCurves(std::span<const ModelReport> reports);
// Gate alone, up alone, both together, and the product of their errors; for gated blocks.
PageData InteractionChart(const ModelReport& report);

// A bar for each part of the block and each file, and for everything.
PageData PartBars(std::span<const ModelReport> reports);

// The scale of the heat-maps, the same for all files: logarithmic, so that one bad layer does not
// make all others look alike.
struct HeatScale {
  double low = 0;  // and below: the first colour
  double top = 0;
};
HeatScale MakeHeatScale(std::span<const ModelReport> reports);
PageData HeatColumns();
PageData HeatRows(const ModelReport& report, const HeatScale& scale);

// Every matrix's weights before and after.
PageData Histograms(const ModelReport& report);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_PAGE_CHARTS_H_
