// What a report points at: a place in the model, and what is the matter there.
#ifndef SLUICE_QUANT_ANALYSIS_FINDING_H_
#define SLUICE_QUANT_ANALYSIS_FINDING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sluice/format.h"

namespace sluice {

enum class FindingKind : uint8_t {
  // The file does not hold what quantizing the checkpoint gives.
  kSwappedGateUp,     // gate's weights are up's, and up's are gate's
  kUnrelatedWeights,  // most rows point elsewhere than the checkpoint's
  kOutlierWeight,     // a weight far outside of what its block, or its matrix, holds
  kZeroBlock,         // weights that became zeros although their scale could have held them
  kZeroMatrix,        // all weights are zero in the checkpoint
  kNotFinite,         // an output is NaN or infinite
  // The inputs are not what a model produces.
  kActivationSpike,  // one channel of one token, far beyond that channel's other tokens
  // What is so in healthy models, and decides where the error comes from.
  kMassiveActivation,
  kSuperWeight,
  kDeadNeurons,
  kDominantToken,
  kDominantNeuron,
};
// Its name in JSON, "swapped_gate_up".
std::string_view Name(FindingKind kind);

enum class Severity : uint8_t {
  kError,    // the file is not a quantization of the checkpoint, or cannot be used
  kWarning,  // the figures may mean little
  kInfo,     // worth knowing
};
std::string_view Name(Severity severity);

// Places that do not apply are empty. Rows and columns are the checkpoint's [out, in]; of an
// activation, the column is its channel (of the hidden vector: its neuron).
struct Finding {
  FindingKind kind = FindingKind::kNotFinite;
  Severity severity = Severity::kInfo;
  std::optional<size_t> layer = {};
  std::optional<Matrix> matrix = {};
  std::optional<size_t> row = {};
  std::optional<size_t> column = {};
  std::optional<size_t> block = {};  // along K: of as many columns as the message says
  std::optional<size_t> token = {};  // of the calibration, counted from 0
  std::string message = {};          // one sentence that says all of it
};

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_FINDING_H_
