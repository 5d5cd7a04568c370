#include "quant/analysis/finding.h"

namespace sluice {

std::string_view Name(FindingKind kind) {
  switch (kind) {
    case FindingKind::kSwappedGateUp:
      return "swapped_gate_up";
    case FindingKind::kUnrelatedWeights:
      return "unrelated_weights";
    case FindingKind::kOutlierWeight:
      return "outlier_weight";
    case FindingKind::kZeroBlock:
      return "zero_block";
    case FindingKind::kZeroMatrix:
      return "zero_matrix";
    case FindingKind::kNotFinite:
      return "not_finite";
    case FindingKind::kActivationSpike:
      return "activation_spike";
    case FindingKind::kMassiveActivation:
      return "massive_activation";
    case FindingKind::kSuperWeight:
      return "super_weight";
    case FindingKind::kDeadNeurons:
      return "dead_neurons";
    case FindingKind::kDominantToken:
      return "dominant_token";
    case FindingKind::kDominantNeuron:
      return "dominant_neuron";
  }
  return "";
}

std::string_view Name(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kInfo:
      return "info";
  }
  return "";
}

}  // namespace sluice
