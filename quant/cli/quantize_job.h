// The work of `sluice quantize`.
#ifndef SLUICE_QUANT_CLI_QUANTIZE_JOB_H_
#define SLUICE_QUANT_CLI_QUANTIZE_JOB_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "quant/cli/files.h"
#include "quant/cli/token_options.h"
#include "quant/quantizer/choose_formats.h"
#include "quant/quantizer/format_plan.h"
#include "quant/quantizer/method.h"
#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

struct QuantizeOptions {
  std::string model;
  std::string output;
  FormatRequest formats;
  std::optional<ActivationFormat> activations;
  Method method = Method::kRtn;
  std::optional<std::string> calibration;
  TokenOptions tokens;
  FormatBudget budget;  // given: formats are chosen, and `formats` asks for nothing but layers
  bool rescale = true;  // up against down, where the method does and the formats allow it
  bool resume = false;
  std::optional<std::string> config;
  std::vector<ReportPath> reports;
  size_t threads = 0;  // 0: the default
  bool strict = false;
  bool force = false;
  bool quiet = false;
  std::string command;  // for the report
};

// Reads one matrix at a time, or one layer where the method needs calibration, quantizes, packs and
// writes it. The packed file and the reports appear when all is done, or not at all.
Status QuantizeModel(const QuantizeOptions& options);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_QUANTIZE_JOB_H_
