#include "quant/quantizer/format_plan.h"

#include <algorithm>
#include <charconv>
#include <format>

#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

std::optional<size_t> ParseNumber(std::string_view text) {
  size_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return number;
}

std::optional<LayerRange> ParseRange(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = ParseNumber(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : ParseNumber(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return LayerRange{*first, *last};
}

// The items of LAYERS; empty for "*".
std::optional<std::vector<LayerRange>> ParseLayers(std::string_view text) {
  std::vector<LayerRange> ranges;
  if (text == "*") return ranges;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto range = ParseRange(text.substr(begin, end - begin));
    if (!range) return std::nullopt;
    ranges.push_back(*range);
    begin = end + 1;
  }
  return ranges;
}

std::string Text(LayerRange range) {
  return range.first == range.last ? std::format("{}", range.first)
                                   : std::format("{}-{}", range.first, range.last);
}

std::string Text(std::span<const SourceLayer> layers) {
  if (layers.empty()) return "none";
  return Text(LayerRange{layers.front().layer, layers.back().layer});
}

bool Has(const SourceLayer& layer, Matrix matrix) { return matrix != Matrix::kGate || layer.gated; }

// The part of `layers`, which ascend, that --layers selects.
Expected<std::span<const SourceLayer>> Select(std::span<const SourceLayer> layers,
                                              std::optional<LayerRange> range) {
  if (!range) return layers;
  const auto find = [&](size_t number) {
    return std::ranges::find(layers, number, &SourceLayer::layer);
  };
  const auto first = find(range->first);
  const auto last = find(range->last);
  if (first == layers.end() || last == layers.end()) {
    return Fail(ErrorCode::kInvalidArgument,
                "--layers {}: the checkpoint has no layer {}, it has {}", Text(*range),
                first == layers.end() ? range->first : range->last, Text(layers));
  }
  return std::span(first, last + 1);
}

// Gives each layer in `range` that has the matrix the override's format. False: there is none.
bool Apply(const FormatOverride& rule, LayerRange range, std::span<const SourceLayer> layers,
           std::span<LayerFormats> plan) {
  bool matched = false;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!range.contains(layers[i].layer) || !Has(layers[i], rule.matrix)) continue;
    plan[i].formats[rule.matrix] = rule.format;
    matched = true;
  }
  return matched;
}

Status Apply(const FormatOverride& rule, std::span<const SourceLayer> layers,
             std::span<LayerFormats> plan) {
  std::vector<LayerRange> ranges = rule.layers;
  if (ranges.empty()) ranges.push_back({0, layers.back().layer});
  for (const LayerRange range : ranges) {
    if (Apply(rule, range, layers, plan)) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "--override {}: no layer to quantize among {} has a {} (layers to quantize: {})",
                rule.text, Text(range), Name(rule.matrix), Text(layers));
  }
  return {};
}

}  // namespace

Expected<LayerRange> ParseLayerRange(std::string_view text) {
  if (const auto range = ParseRange(text)) return *range;
  return Fail(ErrorCode::kInvalidArgument, "{} is not a range of layers, A-B with A <= B or N",
              Quote(text));
}

Expected<FormatOverride> ParseFormatOverride(std::string_view text) {
  const size_t colon = text.find(':');
  const size_t equals = text.find('=', colon);
  if (equals == std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, "override {} is not LAYERS:MATRIX=FMT", Quote(text));
  }
  const auto layers = ParseLayers(text.substr(0, colon));
  if (!layers) {
    return Fail(ErrorCode::kInvalidArgument,
                "override {}: {} is neither * nor layers such as 3, 0-5 or 0,7-9", Quote(text),
                Quote(text.substr(0, colon)));
  }
  FormatOverride rule;
  rule.text = text;
  rule.layers = *layers;
  SLUICE_ASSIGN(rule.matrix, ParseMatrix(text.substr(colon + 1, equals - colon - 1)));
  SLUICE_ASSIGN(rule.format, ParseWeightFormat(text.substr(equals + 1)));
  return rule;
}

Expected<std::vector<LayerFormats>> PlanFormats(const FormatRequest& request,
                                                std::span<const SourceLayer> layers) {
  SLUICE_ASSIGN(const std::span<const SourceLayer> selected, Select(layers, request.layers));
  if (selected.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the checkpoint has no feed-forward layers");
  }
  if (request.matrices[Matrix::kGate] && std::ranges::none_of(selected, &SourceLayer::gated)) {
    return Fail(ErrorCode::kInvalidArgument,
                "--gate {}: none of the layers to quantize ({}) has a gate",
                Name(*request.matrices[Matrix::kGate]), Text(selected));
  }
  std::vector<LayerFormats> plan(selected.size());
  for (size_t i = 0; i < selected.size(); ++i) {
    plan[i].layer = selected[i].layer;
    for (const Matrix m : kMatrices) {
      plan[i].formats[m] = request.matrices[m].value_or(request.weights);
    }
  }
  for (const FormatOverride& rule : request.overrides) {
    SLUICE_TRY(Apply(rule, selected, plan));
  }
  return plan;
}

}  // namespace sluice
