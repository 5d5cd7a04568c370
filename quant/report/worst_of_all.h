// The worst of all layers, for the tables that have no room for every layer's.
#ifndef SLUICE_QUANT_REPORT_WORST_OF_ALL_H_
#define SLUICE_QUANT_REPORT_WORST_OF_ALL_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "quant/analysis/block_report.h"

namespace sluice {

template <class T>
struct OfLayer {
  size_t layer = 0;  // its number in the checkpoint
  T item;
};

// The `count` first of each, descending: tokens by their error, neurons by their share of their
// layer's, peaks (`count` of each site) by how far they are over the median. NaN is the largest.
std::vector<OfLayer<TokenShare>> WorstTokensOfAll(const ModelReport& report, size_t count);
std::vector<OfLayer<NeuronShare>> WorstNeuronsOfAll(const ModelReport& report, size_t count);
std::vector<OfLayer<ActivationPeak>> PeaksOfAll(const ModelReport& report, size_t count);

// The means over all gated blocks; empty if there is none.
std::optional<GateUpInteraction> MeanInteraction(const ModelReport& report);

// Them as a sentence.
std::string InteractionText(const ModelReport& report, const GateUpInteraction& mean);

// "12.3 ×"
std::string Times(double ratio);

// A sentence without its full stop; the layer must have a super weight.
std::string SuperWeightText(const LayerReport& layer);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_WORST_OF_ALL_H_
