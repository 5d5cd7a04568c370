// What the figures of one layer show at a glance, once somebody says it.
#ifndef SLUICE_QUANT_ANALYSIS_LAYER_FINDINGS_H_
#define SLUICE_QUANT_ANALYSIS_LAYER_FINDINGS_H_

#include <optional>
#include <vector>

#include "quant/analysis/activation_peaks.h"
#include "quant/analysis/block_report.h"
#include "quant/analysis/double_matrix.h"
#include "quant/analysis/finding.h"
#include "sluice/matrix_view.h"

namespace sluice {

// What gate and up make of the inputs, [t, d_ff] each, before the activation: with the checkpoint's
// weights and with the file's.
struct GateAndUp {
  const DoubleMatrix& gate;
  const DoubleMatrix& gate_stored;
  const DoubleMatrix& up;
  const DoubleMatrix& up_stored;
};

// swapped_gate_up: the file's gate is nearer to the checkpoint's up than to its gate, and its up is
// nearer to gate, by 0.3 in cosine each.
std::optional<Finding> FindSwap(const GateAndUp& projections);

// activation_spike (a warning): as FindSpikes has them, of the inputs.
std::vector<Finding> FindInputSpikes(const DoubleMatrix& inputs);

// dead_neurons: whose hidden activation is 0 for every token; none with fewer than kSpikeTokens.
std::optional<Finding> FindDeadNeurons(const DoubleMatrix& hidden);

// not_finite: the first token whose output has NaN or infinity, and their number.
std::optional<Finding> FindNotFinite(MatrixView<const float> output);

// From a layer's figures: massive_activation, super_weight, dominant_token (half of the squared
// error or more, of kSpikeTokens tokens or more), dominant_neuron (likewise).
std::vector<Finding> FindInFigures(const LayerReport& layer);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_LAYER_FINDINGS_H_
