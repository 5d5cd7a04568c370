// The formats that `sluice quantize` chooses for a budget, and why.
#ifndef SLUICE_QUANT_CLI_PICK_FORMATS_H_
#define SLUICE_QUANT_CLI_PICK_FORMATS_H_

#include <optional>
#include <string>
#include <vector>

#include "quant/cli/token_options.h"
#include "quant/quantizer/choose_formats.h"
#include "quant/quantizer/format_plan.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

struct PickedFormats {
  std::vector<FormatOverride> overrides;  // one for each matrix
  FormatChoice choice;
  std::string why;  // lines for the terminal
};

struct PickSettings {
  std::string model;
  std::optional<std::string> config;
  TokenOptions tokens;  // has a text
  std::optional<LayerRange> layers;
  std::optional<ActivationFormat> activations;
  FormatBudget budget;
  bool quiet = false;
};

// Measures what each format of each matrix costs the model, and takes the best for the budget.
// Errors: those of MeasureSensitivity and ChooseFormats.
Expected<PickedFormats> PickFormats(const PickSettings& settings, const ThreadPool& pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_PICK_FORMATS_H_
