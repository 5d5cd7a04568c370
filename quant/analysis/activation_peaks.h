// Activations that stand out, and the weights that make them.
#ifndef SLUICE_QUANT_ANALYSIS_ACTIVATION_PEAKS_H_
#define SLUICE_QUANT_ANALYSIS_ACTIVATION_PEAKS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "quant/analysis/double_matrix.h"
#include "sluice/matrix_view.h"

namespace sluice {

enum class ActivationSite : uint8_t { kInput, kHidden, kOutput };
std::string_view Name(ActivationSite site);  // "input", "hidden", "output"

// One value of the block's input, of its hidden vector (channels are neurons) or of its output, in
// FP32's block.
struct ActivationPeak {
  ActivationSite site = ActivationSite::kInput;
  size_t token = 0;
  size_t channel = 0;
  double value = 0;
  // |value| over the median of |·| at this site.
  double over_median = 0;
  // |value| over the largest |·| that the same channel has in another token; ∞ if that is 0 or
  // there is no other token.
  double over_channel = 0;
};

// Massive activations are beyond 100 and far beyond the median. Sun et al. 2024 ("Massive
// Activations in Large Language Models") take a thousand times the median of the residual stream;
// one block's part of that is smaller. SmolLM2-135M's is made in layer 2, 885 times the median.
inline constexpr double kMassiveOverMedian = 500;
inline constexpr double kMassiveValue = 100;
inline bool IsMassive(const ActivationPeak& peak) {
  return peak.over_median >= kMassiveOverMedian &&
         (peak.value >= kMassiveValue || peak.value <= -kMassiveValue);
}

// The largest values [tokens, channels], one for each of the `count` channels that have them,
// descending. Empty if a value is not finite, or all are 0.
std::vector<ActivationPeak> FindPeaks(ActivationSite site, const DoubleMatrix& values,
                                      size_t count);

// Channels where one token has kSpikeOverChannel times what any other has and kSpikeOverMedian
// times the channel's median of |·|: no norm gives such inputs, whatever the text. The farthest
// first, `count` at most; none with fewer than kSpikeTokens tokens.
inline constexpr double kSpikeOverChannel = 30;
inline constexpr double kSpikeOverMedian = 100;
inline constexpr size_t kSpikeTokens = 8;
std::vector<ActivationPeak> FindSpikes(ActivationSite site, const DoubleMatrix& values,
                                       size_t count);

// A weight of down through which one neuron makes most of a massive output (Yu et al. 2024, "The
// Super Weight in Large Language Models").
struct SuperWeight {
  size_t row = 0;     // channel of the output
  size_t column = 0;  // neuron
  size_t token = 0;
  double trained = 0;
  double stored = 0;
  double output = 0;  // of that channel and token
  double share = 0;   // of the output that comes through this weight
};

// At the largest output of all: the weight that makes at least half of it, if that output is
// massive and its neuron the token's largest. `hidden` [t, d_ff], `output` [t, d_model].
std::optional<SuperWeight> FindSuperWeight(const DoubleMatrix& hidden, const DoubleMatrix& output,
                                           MatrixView<const float> trained,
                                           MatrixView<const float> stored);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_ACTIVATION_PEAKS_H_
