#include "quant/report/report_html.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <format>
#include <kainjow/mustache.hpp>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "quant/report/matrix_summary.h"
#include "quant/report/numbers.h"
#include "quant/report/parts.h"
#include "quant/report/printable.h"
#include "quant/report/verdict.h"

namespace sluice {

// report.html.mustache, embedded when the program is built.
extern const char kReportTemplate[];

namespace {

using kainjow::mustache::data;

data List() { return data(data::type::list); }

// A value that a section can ask for: empty text is absent.
void SetIfAny(data& to, const std::string& key, const std::string& text) {
  to.set(key, text.empty() ? data(false) : data(text));
}

// The larger of two figures, leaving aside what is not finite.
double FiniteMax(double a, double b) { return std::isfinite(b) ? std::max(a, b) : a; }

// The scale of the heat-map: logarithmic, so that one bad layer does not make all others look
// alike.
struct HeatScale {
  double low = 0;  // and below: the first colour
  double top = 0;
};

// From the smallest error of any part of any layer to the largest, over one decade at least, or
// differences that are none would stand out, and three at most.
HeatScale MakeHeatScale(const ModelReport& report) {
  HeatScale scale = {.low = std::numeric_limits<double>::infinity(), .top = 0};
  const auto add = [&](double error) {
    if (!std::isfinite(error) || error <= 0) return;
    scale.low = std::min(scale.low, error);
    scale.top = std::max(scale.top, error);
  };
  for (const LayerReport& layer : report.layers) {
    for (const Part& part : kParts) add(part.error(layer.attribution).value_or(0));
    add(layer.attribution.all);
  }
  scale.low = std::clamp(scale.low, scale.top / 1000, scale.top / 10);
  return scale;
}

// The top of a scale for values up to `value`: a round number whose half is round too.
double RoundAxis(double value) {
  if (value <= 0) return 0.01;
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double step : {1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0}) {
    if (value <= step * power * (1 + 1e-9)) return step * power;
  }
  return 10 * power;
}

std::string Share(double value, double of) {
  return std::format("{:.2f}", of > 0 ? std::clamp(100 * value / of, 0.0, 100.0) : 0.0);
}

// A number is not torn from its unit at the end of a line.
std::string Unbroken(std::string text) {
  for (const char* unit : {" %", " B", " kB", " MB", " GB", " TB"}) {
    for (size_t at = text.find(unit); at != std::string::npos; at = text.find(unit, at + 1)) {
      text.replace(at, 1, "\u00A0");
    }
  }
  return text;
}

data Tile(const std::string& value, const std::string& label) {
  data tile;
  tile.set("value", value);
  tile.set("label", label);
  return tile;
}

data Tiles(const ModelReport& report) {
  data tiles = List();
  const bool one = report.layers.size() == 1;
  tiles << Tile(Percent(report.totals.relative_l2_mean),
                one ? "output error" : "output error, mean of the layers");
  if (const auto worst = WorstLayer(report); worst && !one) {
    const LayerReport& layer = report.layers[*worst];
    tiles << Tile(Percent(layer.output.relative_l2),
                  std::format("output error at worst, layer {}", layer.layer));
  }
  tiles << Tile(Significant(report.totals.bits_per_weight), "bits per weight");
  std::string instead =
      std::format("instead of {} in FP32", Size(static_cast<double>(Fp32Bytes(report))));
  if (report.source.bytes != 0 && report.source.bytes != Fp32Bytes(report)) {
    instead += std::format(", {} in the source", Size(static_cast<double>(report.source.bytes)));
  }
  tiles << Tile(Size(static_cast<double>(report.totals.ffn_bytes)), instead);
  return tiles;
}

// The stored formats of one kind of matrix, in the order of their first layers.
std::string FormatsOf(const std::vector<SummaryRow>& rows, std::string_view matrix) {
  std::string formats;
  for (const SummaryRow& row : rows) {
    if (Name(row.matrix) != matrix) continue;
    if (!formats.empty()) formats += ", ";
    formats += Name(row.format);
  }
  return formats;
}

data PartBar(std::string_view name, const std::string& format, double error, double top) {
  data bar;
  bar.set("name", std::string(name));
  SetIfAny(bar, "format", format);
  bar.set("value", Percent(error));
  bar.set("width", Share(std::isfinite(error) ? error : top, top));
  return bar;
}

data PartBars(const ModelReport& report, const std::vector<SummaryRow>& rows) {
  double top = FiniteMax(0, report.totals.relative_l2_mean);
  double largest = -1;
  for (const Part& part : kParts) {
    const double error = MeanError(report, part).value_or(0);
    top = FiniteMax(top, error);
    largest = FiniteMax(largest, error);
  }
  data bars = List();
  for (const Part& part : kParts) {
    const std::optional<double> error = MeanError(report, part);
    if (!error) continue;
    data bar = PartBar(part.name, FormatsOf(rows, part.key), *error, top);
    bar.set("class", *error == largest && largest > 0 ? "largest" : "part");
    bars << bar;
  }
  data whole = PartBar("everything", "", report.totals.relative_l2_mean, top);
  whole.set("class", "whole");
  bars << whole;
  return bars;
}

// Columns with a label under every so many of them, so that labels have room on a phone.
data Columns(const ModelReport& report, double top) {
  const size_t every = std::max<size_t>(1, (report.layers.size() + 11) / 12);
  const std::optional<size_t> worst = WorstLayer(report);
  data columns = List();
  for (size_t i = 0; i < report.layers.size(); ++i) {
    const LayerReport& layer = report.layers[i];
    const double error = layer.output.relative_l2;
    data column;
    SetIfAny(column, "class", !std::isfinite(error) ? "bad" : worst == i ? "worst" : "");
    column.set("height", std::isfinite(error) ? Share(error, top) : "100.00");
    column.set("layer", std::to_string(layer.layer));
    column.set("value", Percent(error));
    column.set("tick", i % every == 0 ? std::to_string(layer.layer) : "");
    columns << column;
  }
  return columns;
}

data HeatCell(std::optional<double> error, const HeatScale& scale) {
  data cell;
  cell.set("value", error ? Percent(*error) : "");
  if (!error) {
    cell.set("class", "none");
  } else if (!std::isfinite(*error)) {
    cell.set("class", "bad");
  } else {
    const double step =
        *error <= scale.low
            ? 0
            : std::floor(10 * std::log(*error / scale.low) / std::log(scale.top / scale.low));
    cell.set("class", std::format("h{}", static_cast<int>(std::clamp(step, 0.0, 9.0))));
  }
  return cell;
}

// Everything first: on a phone the other columns are out of sight.
data HeatRows(const ModelReport& report, const HeatScale& scale) {
  data rows = List();
  for (const LayerReport& layer : report.layers) {
    data cells = List();
    cells << HeatCell(layer.attribution.all, scale);
    for (const Part& part : kParts) cells << HeatCell(part.error(layer.attribution), scale);
    data row;
    row.set("layer", std::to_string(layer.layer));
    row.set("cells", cells);
    rows << row;
  }
  return rows;
}

data HeatColumns() {
  data columns = List();
  columns << data("name", "everything");
  for (const Part& part : kParts) columns << data("name", std::string(part.name));
  return columns;
}

data SummaryTable(const std::vector<SummaryRow>& rows) {
  data table = List();
  for (const SummaryRow& row : rows) {
    data line;
    line.set("matrix", std::string(Name(row.matrix)));
    line.set("layers", Ranges(row.layers));
    line.set("requested", Name(row.requested));
    line.set("format", Name(row.format));
    line.set("changed", data(row.requested != row.format));
    line.set("bits", Significant(row.bits_per_weight, 4));
    line.set("bytes", Size(row.bytes));
    line.set("rmse_mean", Percent(row.rmse_mean));
    line.set("rmse_worst", std::format("{}: {}", row.rmse_max_layer, Percent(row.rmse_max)));
    line.set("max_abs", Significant(row.max_abs_error));
    line.set("zero_blocks", Grouped(row.zero_blocks));
    table << line;
  }
  return table;
}

std::string Fixed(double value, int digits) {
  return std::isfinite(value) ? std::format("{:.{}f}", value, digits) : Significant(value);
}

data LayerTable(const ModelReport& report) {
  data table = List();
  for (const LayerReport& layer : report.layers) {
    const OutputReport& output = layer.output;
    data line;
    line.set("layer", std::to_string(layer.layer));
    line.set("tokens", Grouped(layer.tokens));
    line.set("activations",
             std::format("{}, {}", Name(layer.input_activations), Name(layer.hidden_activations)));
    line.set("relative_l2", Percent(output.relative_l2));
    line.set("sqnr", Fixed(output.sqnr_db, 1));
    line.set("cosine_mean", Fixed(output.cosine_mean, 5));
    line.set("cosine_min", Fixed(output.cosine_min, 5));
    line.set("max_abs", Significant(output.max_abs_error));
    line.set("worst_token", std::to_string(output.worst_token));
    table << line;
  }
  return table;
}

data MatrixTable(const ModelReport& report) {
  data table = List();
  for (const LayerReport& layer : report.layers) {
    bool first = true;
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      const MatrixReport& matrix = *layer.matrices[m];
      data line;
      line.set("first", data(first));
      line.set("layer", std::to_string(layer.layer));
      line.set("matrix", std::string(Name(m)));
      line.set("shape", std::format("{} × {}", matrix.rows, matrix.cols));
      line.set("requested", Name(matrix.requested));
      line.set("format", Name(matrix.format));
      line.set("changed", data(matrix.requested != matrix.format));
      line.set("bits", Significant(matrix.bits_per_weight, 4));
      line.set("rmse", Percent(matrix.weight_relative_rmse));
      line.set("max_abs", Significant(matrix.weight_max_abs_error));
      line.set("zero_blocks", Grouped(matrix.zero_blocks));
      table << line;
      first = false;
    }
  }
  return table;
}

std::string Title(const ModelReport& report) {
  std::filesystem::path path = report.model;
  if (!path.has_filename()) path = path.parent_path();  // a folder given as "folder/"
  const std::string name = path.filename().string();
  return Printable(name.empty() ? report.model : name);
}

data Warnings(const ModelReport& report) {
  data list = List();
  for (const std::string& warning : OtherWarnings(report)) list << data("text", Printable(warning));
  return list;
}

}  // namespace

std::string ReportHtml(const ModelReport& report, const ReportOrigin& origin) {
  const Verdict verdict = Judge(report);
  const std::vector<SummaryRow> rows = Summarize(MatricesOf(report));
  const HeatScale heat = MakeHeatScale(report);
  double largest_output = 0;
  for (const LayerReport& layer : report.layers) {
    largest_output = FiniteMax(largest_output, layer.output.relative_l2);
  }
  const double axis_top = RoundAxis(largest_output);

  data page;
  page.set("title", Title(report));
  page.set("model", Printable(report.model));
  page.set("file", Printable(report.file));
  SetIfAny(page, "alarm", RandomInputsWarning(report));
  SetIfAny(page, "source_alarm", QuantizedSourceWarning(report.source));
  page.set("has_warnings", data(!OtherWarnings(report).empty()));
  page.set("warnings", Warnings(report));
  page.set("cost", Unbroken(verdict.cost));
  SetIfAny(page, "source", Unbroken(verdict.source));
  SetIfAny(page, "size", Unbroken(verdict.size));
  page.set("tiles", Tiles(report));
  page.set("parts", PartBars(report, rows));
  page.set("axis_top", Percent(axis_top));
  page.set("axis_middle", Percent(axis_top / 2));
  page.set("columns", Columns(report, axis_top));
  page.set("heat_columns", HeatColumns());
  page.set("heat_rows", HeatRows(report, heat));
  page.set("heat_low", Percent(heat.low));
  page.set("heat_top", Percent(heat.top));
  page.set("summary", SummaryTable(rows));
  page.set("layers", LayerTable(report));
  page.set("matrices", MatrixTable(report));
  page.set("command", Printable(origin.command));
  page.set("calibration", std::format("{}, {}", Printable(report.calibration_source),
                                      Plural(report.calibration_tokens, "token")));
  page.set("backend", Printable(report.backend));
  page.set("cpu", Printable(report.cpu));
  page.set("version", Printable(origin.version));
  return kainjow::mustache::mustache(kReportTemplate).render(page);
}

}  // namespace sluice
