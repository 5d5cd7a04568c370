#include "quant/analysis/layer_findings.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <utility>

namespace sluice {
namespace {

constexpr double kSwapMargin = 0.3;
constexpr double kDominant = 0.5;
constexpr size_t kNamedSpikes = 3;

double Cosine(const DoubleMatrix& a, const DoubleMatrix& b) {
  const double norms = a.norm() * b.norm();
  return norms > 0 ? a.cwiseProduct(b).sum() / norms : 0;
}

Finding Of(FindingKind kind, Severity severity, std::string message) {
  Finding finding;
  finding.kind = kind;
  finding.severity = severity;
  finding.message = std::move(message);
  return finding;
}

// The matrix that an activation goes into, or comes out of.
std::optional<Matrix> MatrixOf(ActivationSite site) {
  return site == ActivationSite::kInput ? std::nullopt : std::optional(Matrix::kDown);
}

Finding MassiveActivation(const ActivationPeak& peak) {
  Finding finding = Of(FindingKind::kMassiveActivation, Severity::kInfo,
                       std::format("{} {} is {:.4g} at token {}, {:.0f} times the median",
                                   peak.site == ActivationSite::kHidden  ? "neuron"
                                   : peak.site == ActivationSite::kInput ? "input channel"
                                                                         : "output channel",
                                   peak.channel, peak.value, peak.token, peak.over_median));
  finding.token = peak.token;
  finding.matrix = MatrixOf(peak.site);
  // Of down [d_model, d_ff], a neuron is a column and an output channel a row.
  (peak.site == ActivationSite::kOutput ? finding.row : finding.column) = peak.channel;
  return finding;
}

Finding Super(const SuperWeight& weight) {
  Finding finding =
      Of(FindingKind::kSuperWeight, Severity::kInfo,
         std::format("down [{}, {}] = {:.4g}, {:.4g} in the file, makes {:.0f} % of the layer's "
                     "largest output, {:.4g} at token {}",
                     weight.row, weight.column, weight.trained, weight.stored, 100 * weight.share,
                     weight.output, weight.token));
  finding.matrix = Matrix::kDown;
  finding.row = weight.row;
  finding.column = weight.column;
  finding.token = weight.token;
  return finding;
}

Finding DominantToken(const TokenShare& token) {
  Finding finding = Of(FindingKind::kDominantToken, Severity::kInfo,
                       std::format("token {} alone makes {:.0f} % of the squared output error",
                                   token.token, 100 * token.share));
  finding.token = token.token;
  return finding;
}

Finding DominantNeuron(const NeuronShare& neuron) {
  Finding finding =
      Of(FindingKind::kDominantNeuron, Severity::kInfo,
         std::format("neuron {} alone makes {:.0f} % of the squared output error, most of it by "
                     "its {}",
                     neuron.neuron, 100 * neuron.share,
                     neuron.key >= neuron.value ? "key (gate, up and activations)"
                                                : "value (its column of down)"));
  if (neuron.value > neuron.key) finding.matrix = Matrix::kDown;
  (finding.matrix ? finding.column : finding.row) = neuron.neuron;
  finding.token = neuron.token;
  return finding;
}

}  // namespace

std::optional<Finding> FindSwap(const GateAndUp& p) {
  const double gate_gate = Cosine(p.gate_stored, p.gate);
  const double gate_up = Cosine(p.gate_stored, p.up);
  const double up_up = Cosine(p.up_stored, p.up);
  const double up_gate = Cosine(p.up_stored, p.gate);
  if (!(gate_up > gate_gate + kSwapMargin && up_gate > up_up + kSwapMargin)) return std::nullopt;
  Finding finding =
      Of(FindingKind::kSwappedGateUp, Severity::kError,
         std::format("GATE AND UP LOOK SWAPPED: the file's gate has a cosine of {:.2f} with the "
                     "checkpoint's up and of {:.2f} with its gate, its up one of {:.2f} with gate "
                     "and of {:.2f} with up",
                     gate_up, gate_gate, up_gate, up_up));
  finding.matrix = Matrix::kGate;
  return finding;
}

std::vector<Finding> FindInputSpikes(const DoubleMatrix& inputs) {
  std::vector<Finding> findings;
  for (const ActivationPeak& spike : FindSpikes(ActivationSite::kInput, inputs, kNamedSpikes)) {
    Finding& finding = findings.emplace_back(
        Of(FindingKind::kActivationSpike, Severity::kWarning,
           std::format("token {}: input channel {} is {:.4g}, {:.0f} times the largest that this "
                       "channel has in any other token; such an input is hardly a model's",
                       spike.token, spike.channel, spike.value, spike.over_channel)));
    finding.token = spike.token;
    finding.column = spike.channel;
  }
  return findings;
}

std::optional<Finding> FindDeadNeurons(const DoubleMatrix& hidden) {
  if (static_cast<size_t>(hidden.rows()) < kSpikeTokens) return std::nullopt;
  size_t dead = 0;
  size_t first = 0;
  for (Eigen::Index j = 0; j < hidden.cols(); ++j) {
    if ((hidden.col(j).array() != 0).any()) continue;
    if (dead++ == 0) first = static_cast<size_t>(j);
  }
  // Of weights that are all zero there is a finding already.
  if (dead == 0 || dead == static_cast<size_t>(hidden.cols())) return std::nullopt;
  Finding finding =
      Of(FindingKind::kDeadNeurons, Severity::kInfo,
         std::format("{} of {} neurons are 0 for every token, the first is {}; their weights do "
                     "nothing for this text",
                     dead, hidden.cols(), first));
  finding.matrix = Matrix::kDown;
  finding.column = first;
  return finding;
}

std::optional<Finding> FindNotFinite(MatrixView<const float> output) {
  size_t bad = 0;
  size_t first = 0;
  for (size_t t = 0; t < output.rows; ++t) {
    if (std::ranges::all_of(output.row(t), [](float v) { return std::isfinite(v); })) continue;
    if (bad++ == 0) first = t;
  }
  if (bad == 0) return std::nullopt;
  Finding finding =
      Of(FindingKind::kNotFinite, Severity::kError,
         std::format("the output of {} of {} tokens is not finite", bad, output.rows));
  finding.token = first;
  return finding;
}

std::vector<Finding> FindInFigures(const LayerReport& layer) {
  std::vector<Finding> findings;
  for (const ActivationPeak& peak : layer.peaks) {
    if (IsMassive(peak)) findings.push_back(MassiveActivation(peak));
  }
  if (layer.super_weight) findings.push_back(Super(*layer.super_weight));
  if (layer.tokens >= kSpikeTokens) {
    const auto token = std::ranges::max_element(layer.worst_tokens, {}, [](const TokenShare& t) {
      return std::isnan(t.share) ? 0 : t.share;
    });
    if (token != layer.worst_tokens.end() && token->share >= kDominant) {
      findings.push_back(DominantToken(*token));
    }
  }
  if (!layer.worst_neurons.empty() && layer.worst_neurons[0].share >= kDominant) {
    findings.push_back(DominantNeuron(layer.worst_neurons[0]));
  }
  return findings;
}

}  // namespace sluice
