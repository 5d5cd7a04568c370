#include "quant/report/worst_of_all.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <functional>
#include <iterator>
#include <limits>

#include "quant/report/numbers.h"

namespace sluice {
namespace {

template <class T, class Rank>
std::vector<OfLayer<T>> LargestOfAll(const ModelReport& report, std::vector<T> LayerReport::* items,
                                     size_t count, const Rank& rank) {
  std::vector<OfLayer<T>> all;
  for (const LayerReport& layer : report.layers) {
    for (const T& item : layer.*items) all.push_back({layer.layer, item});
  }
  std::ranges::stable_sort(all, std::greater(), [&](const OfLayer<T>& item) {
    const double value = rank(item.item);
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  });
  if (all.size() > count) all.resize(count);
  return all;
}

}  // namespace

std::vector<OfLayer<TokenShare>> WorstTokensOfAll(const ModelReport& report, size_t count) {
  return LargestOfAll(report, &LayerReport::worst_tokens, count,
                      [](const TokenShare& token) { return token.relative_l2; });
}

std::vector<OfLayer<NeuronShare>> WorstNeuronsOfAll(const ModelReport& report, size_t count) {
  return LargestOfAll(report, &LayerReport::worst_neurons, count,
                      [](const NeuronShare& neuron) { return neuron.share; });
}

std::vector<OfLayer<ActivationPeak>> PeaksOfAll(const ModelReport& report, size_t count) {
  std::vector<OfLayer<ActivationPeak>> peaks;
  for (const ActivationSite site :
       {ActivationSite::kInput, ActivationSite::kHidden, ActivationSite::kOutput}) {
    std::vector<OfLayer<ActivationPeak>> here = LargestOfAll(
        report, &LayerReport::peaks, count,
        [site](const ActivationPeak& peak) { return peak.site == site ? peak.over_median : -1; });
    std::erase_if(here, [site](const auto& peak) { return peak.item.site != site; });
    std::ranges::move(here, std::back_inserter(peaks));
  }
  return peaks;
}

std::optional<GateUpInteraction> MeanInteraction(const ModelReport& report) {
  GateUpInteraction mean;
  double count = 0;
  for (const LayerReport& layer : report.layers) {
    if (!layer.interaction) continue;
    mean.together += layer.interaction->together;
    mean.product += layer.interaction->product;
    mean.cosine += layer.interaction->cosine;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return GateUpInteraction{mean.together / count, mean.product / count, mean.cosine / count};
}

std::string InteractionText(const ModelReport& report, const GateUpInteraction& mean) {
  return std::format(
      "{}ogether {}, the product alone {}; the cosine of the two single errors is {} (0: "
      "independent).",
      report.layers.size() == 1 ? "T" : "On average: t", Percent(mean.together),
      Percent(mean.product), Significant(mean.cosine, 2));
}

std::string Times(double ratio) {
  return std::isfinite(ratio) ? Significant(ratio) + " ×" : Significant(ratio);
}

std::string SuperWeightText(const LayerReport& layer) {
  const SuperWeight& w = *layer.super_weight;
  return std::format(
      "layer {}, down [{}, {}] = {}, {} in the file; it makes {} of the output {} of token {}",
      layer.layer, w.row, w.column, Significant(w.trained), Significant(w.stored), Percent(w.share),
      Significant(w.output), w.token);
}

}  // namespace sluice
