#include "quant/report/page_charts.h"

#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "quant/analysis/histogram.h"
#include "quant/report/matrix_summary.h"
#include "quant/report/numbers.h"
#include "quant/report/parts.h"
#include "quant/report/verdict.h"

namespace sluice {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::string At(double percent) { return std::format("{:.2f}", percent); }

// From a round number at or below the smallest positive value to one at or above the largest.
class LogAxis {
 public:
  explicit LogAxis(const std::vector<Curve>& curves) {
    double low = std::numeric_limits<double>::infinity();
    double high = 0;
    for (const Curve& curve : curves) {
      for (const double v : curve.values) {
        if (!std::isfinite(v) || v <= 0) continue;
        low = std::min(low, v);
        high = std::max(high, v);
      }
    }
    if (high == 0) low = high = 0.01;
    // What is far below the rest, as an error of rounding in double, need not be told apart.
    low = std::max(low, high / 1e5);
    bottom_ = RoundDown(low);
    top_ = bottom_;
    while (top_ < high * (1 - 1e-9) || top_ == bottom_) top_ = Next(top_);
  }

  // In percent of the height, from the bottom.
  double Position(double value) const {
    if (value <= bottom_) return 0;
    return 100 * std::log(value / bottom_) / std::log(top_ / bottom_);
  }

  PageData Ticks() const {
    PageData ticks = PageList();
    // Over more than two decades, powers of ten are enough.
    const bool wide = top_ / bottom_ > 100 * (1 + 1e-9);
    for (double v = bottom_; v <= top_ * (1 + 1e-9); v = Next(v)) {
      const double mantissa = v / std::pow(10, std::floor(std::log10(v) + 1e-9));
      if (wide && mantissa > 1.5) continue;
      PageData tick;
      tick.set("at", At(Position(v)));
      tick.set("from_top", At(100 - Position(v)));
      tick.set("label", Significant(100 * v, 1) + " %");
      ticks << tick;
    }
    return ticks;
  }

 private:
  // The numbers 1, 2 and 5 times powers of ten.
  static double RoundDown(double value) {
    const double power = std::pow(10, std::floor(std::log10(value) + 1e-9));
    for (const double step : {5.0, 2.0}) {
      if (value >= step * power * (1 - 1e-9)) return step * power;
    }
    return power;
  }
  static double Next(double value) {
    const double power = std::pow(10, std::floor(std::log10(value) + 1e-9));
    const double mantissa = value / power;
    return (mantissa < 1.5 ? 2 : mantissa < 3 ? 5 : 10) * power;
  }

  double bottom_ = 0;
  double top_ = 0;
};

// Layers as columns of equal width, a value in the middle of its column.
double LayerPosition(size_t index, size_t count) {
  return 100 * (static_cast<double>(index) + 0.5) / static_cast<double>(count);
}

// Lines break where a value is missing; dots show one that stands alone.
PageData Series(const Curve& curve, const LogAxis& axis) {
  PageData lines = PageList();
  PageData dots = PageList();
  PageData points = PageList();
  size_t length = 0;
  const auto end_line = [&] {
    if (length > 1) {
      PageData line;
      line.set("color", ColorClass(curve.color));
      line.set("points", points);
      lines << line;
    }
    points = PageList();
    length = 0;
  };
  for (size_t i = 0; i < curve.values.size(); ++i) {
    if (!std::isfinite(curve.values[i])) {
      end_line();
      continue;
    }
    PageData point;
    point.set("x", At(LayerPosition(i, curve.values.size())));
    point.set("y", At(100 - axis.Position(curve.values[i])));
    points << point;
    dots << point;
    ++length;
  }
  end_line();
  PageData series;
  series.set("name", curve.name);
  series.set("color", ColorClass(curve.color));
  series.set("lines", lines);
  series.set("dots", dots);
  return series;
}

std::vector<size_t> LayersOf(const ModelReport& report) {
  std::vector<size_t> layers;
  layers.reserve(report.layers.size());
  for (const LayerReport& layer : report.layers) layers.push_back(layer.layer);
  return layers;
}

// `value` of every layer of `report` that is among `layers`.
template <class Value>
std::vector<double> Along(const std::vector<size_t>& layers, const ModelReport& report,
                          const Value& value) {
  std::vector<double> values(layers.size(), kNan);
  for (const LayerReport& layer : report.layers) {
    const auto at = std::ranges::find(layers, layer.layer);
    if (at != layers.end()) values[static_cast<size_t>(at - layers.begin())] = value(layer);
  }
  return values;
}

double OutputError(const LayerReport& layer) { return layer.output.relative_l2; }

// The stored formats of one kind of matrix, in the order of their first layers.
std::string FormatsOf(const std::vector<SummaryRow>& rows, std::string_view matrix) {
  std::string formats;
  for (const SummaryRow& row : rows) {
    if (Name(row.matrix) != matrix || formats.contains(Name(row.format))) continue;
    formats += (formats.empty() ? "" : ", ") + Name(row.format);
  }
  return formats;
}

PageData Bar(std::string_view name, const std::string& format, double error, double top,
             std::string_view color_class) {
  PageData bar;
  bar.set("name", std::string(name));
  SetIfAny(bar, "format", format);
  bar.set("value", Percent(error));
  bar.set("width", Share(std::isfinite(error) ? error : top, top));
  bar.set("class", std::string(color_class));
  return bar;
}

PageData HeatCell(std::optional<double> error, const HeatScale& scale) {
  PageData cell;
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

PageData Steps(const std::array<uint64_t, kHistogramBins>& counts, uint64_t top) {
  PageData steps = PageList();
  for (size_t i = 0; i < counts.size(); ++i) {
    const double height = std::sqrt(static_cast<double>(counts[i]) / static_cast<double>(top));
    PageData step;
    step.set("left", std::to_string(i));
    step.set("right", std::to_string(i + 1));
    step.set("y", std::format("{:.0f}", 100 - 100 * height));
    steps << step;
  }
  return steps;
}

}  // namespace

PageData LineChart(const std::string& title, const std::vector<size_t>& layers,
                   const std::vector<Curve>& curves) {
  const LogAxis axis(curves);
  PageData chart;
  chart.set("title", title);
  chart.set("y_ticks", axis.Ticks());
  PageData x_ticks = PageList();
  PageData bad = PageList();
  // So many labels have room on a phone.
  const size_t every = std::max<size_t>(1, (layers.size() + 11) / 12);
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool missing = !curves.empty() && std::isinf(curves[0].values[i]);
    if (i % every == 0) {
      PageData tick;
      tick.set("at", At(LayerPosition(i, layers.size())));
      tick.set("label", std::to_string(layers[i]));
      x_ticks << tick;
    }
    if (!missing) continue;
    PageData mark;
    mark.set("x", At(100 * static_cast<double>(i) / static_cast<double>(layers.size())));
    mark.set("width", At(100 / static_cast<double>(layers.size())));
    mark.set("layer", std::to_string(layers[i]));
    bad << mark;
  }
  chart.set("x_ticks", x_ticks);
  chart.set("bad", bad);
  PageData series = PageList();
  for (const Curve& curve : curves) series << Series(curve, axis);
  chart.set("series", series);
  return chart;
}

PageData ErrorCurves(std::span<const ModelReport> reports) {
  const std::vector<size_t> layers = LayersOf(reports[0]);
  // Infinity marks a layer whose figure is none; NaN only breaks the line.
  const auto marked = [](const LayerReport& layer) {
    return std::isfinite(OutputError(layer)) ? OutputError(layer)
                                             : std::numeric_limits<double>::infinity();
  };
  std::vector<Curve> curves;
  if (reports.size() == 1) {
    curves.push_back({"everything", 0, Along(layers, reports[0], marked)});
    for (const Part& part : kParts) {
      Curve curve = {std::string(part.name), curves.size(), {}};
      curve.values = Along(layers, reports[0], [&](const LayerReport& layer) {
        return part.error(layer.attribution).value_or(kNan);
      });
      if (std::ranges::any_of(curve.values, [](double v) { return !std::isnan(v); })) {
        curves.push_back(std::move(curve));
      }
    }
  } else {
    for (const ModelReport& report : reports) {
      curves.push_back({FileName(report), curves.size(), Along(layers, report, marked)});
    }
  }
  return LineChart("Output error by layer; the figures are in the tables below", layers, curves);
}

PageData InteractionChart(const ModelReport& report) {
  const std::vector<size_t> layers = LayersOf(report);
  const auto along = [&](const auto& value) {
    return Along(layers, report,
                 [&](const LayerReport& layer) { return layer.interaction ? value(layer) : kNan; });
  };
  const auto part = [](Matrix m) {
    return [m](const LayerReport& layer) { return layer.attribution.matrices[m].value_or(kNan); };
  };
  return LineChart("Output error by layer with gate, up, and both quantized", layers,
                   {{"gate and up together", 0,
                     along([](const LayerReport& layer) { return layer.interaction->together; })},
                    {"gate alone", 1, along(part(Matrix::kGate))},
                    {"up alone", 2, along(part(Matrix::kUp))},
                    {"the product of their errors", 3,
                     along([](const LayerReport& layer) { return layer.interaction->product; })}});
}

PageData PartBars(std::span<const ModelReport> reports) {
  double top = 0;
  for (const ModelReport& report : reports) {
    top = FiniteMax(top, report.totals.relative_l2_mean);
    for (const Part& part : kParts) top = FiniteMax(top, MeanError(report, part).value_or(0));
  }
  const bool one = reports.size() == 1;
  double largest = -1;
  for (const Part& part : kParts) {
    if (one) largest = FiniteMax(largest, MeanError(reports[0], part).value_or(0));
  }
  PageData parts = PageList();
  const auto add = [&](std::string_view name, const auto& error, const auto& format,
                       std::string_view plain_class) {
    PageData bars = PageList();
    bool any = false;
    for (size_t i = 0; i < reports.size(); ++i) {
      const std::optional<double> value = error(reports[i]);
      if (!value) continue;
      PageData bar = Bar(any ? "" : name, format(reports[i]), *value, top,
                         one && *value == largest && largest > 0 ? "largest" : plain_class);
      bar.set("color", one ? "" : ColorClass(i));
      bars << bar;
      any = true;
    }
    PageData group;
    group.set("bars", bars);
    group.set("part_name", std::string(name));
    if (any) parts << group;
  };
  for (const Part& part : kParts) {
    add(
        part.name, [&](const ModelReport& report) { return MeanError(report, part); },
        [&](const ModelReport& report) {
          return FormatsOf(Summarize(MatricesOf(report)), part.key);
        },
        "part");
  }
  largest = -1;
  add(
      "everything",
      [](const ModelReport& report) { return std::optional(report.totals.relative_l2_mean); },
      [](const ModelReport&) { return std::string(); }, "whole");
  return parts;
}

// From the smallest error of any part of any layer to the largest, over one decade at least, or
// differences that are none would stand out, and three at most.
HeatScale MakeHeatScale(std::span<const ModelReport> reports) {
  HeatScale scale = {.low = std::numeric_limits<double>::infinity(), .top = 0};
  const auto add = [&](double error) {
    if (!std::isfinite(error) || error <= 0) return;
    scale.low = std::min(scale.low, error);
    scale.top = std::max(scale.top, error);
  };
  for (const ModelReport& report : reports) {
    for (const LayerReport& layer : report.layers) {
      for (const Part& part : kParts) add(part.error(layer.attribution).value_or(0));
      add(layer.attribution.all);
    }
  }
  scale.low = std::clamp(scale.low, scale.top / 1000, scale.top / 10);
  return scale;
}

// Everything first: on a phone the other columns are out of sight.
PageData HeatRows(const ModelReport& report, const HeatScale& scale) {
  PageData rows = PageList();
  for (const LayerReport& layer : report.layers) {
    PageData cells = PageList();
    cells << HeatCell(layer.attribution.all, scale);
    for (const Part& part : kParts) cells << HeatCell(part.error(layer.attribution), scale);
    PageData row;
    row.set("layer", std::to_string(layer.layer));
    row.set("cells", cells);
    rows << row;
  }
  return rows;
}

PageData HeatColumns() {
  PageData columns = PageList();
  columns << PageData("name", "everything");
  for (const Part& part : kParts) columns << PageData("name", std::string(part.name));
  return columns;
}

PageData Histograms(const ModelReport& report) {
  PageData list = PageList();
  for (const LayerReport& layer : report.layers) {
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      const WeightHistogram& histogram = layer.matrices[m]->histogram;
      const uint64_t top = std::max<uint64_t>(
          {std::ranges::max(histogram.before), std::ranges::max(histogram.after), 1});
      PageData item;
      item.set("layer", std::to_string(layer.layer));
      item.set("matrix", std::string(Name(m)));
      item.set("format", Name(layer.matrices[m]->format));
      item.set("bins", std::to_string(kHistogramBins));
      item.set("limit", Significant(histogram.limit, 2));
      item.set("before", Steps(histogram.before, top));
      item.set("after", Steps(histogram.after, top));
      list << item;
    }
  }
  return list;
}

}  // namespace sluice
