// How `sluice quantize` gets a layer's integers and scales where the method needs calibration.
#ifndef SLUICE_QUANT_CLI_LAYER_FITS_H_
#define SLUICE_QUANT_CLI_LAYER_FITS_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quant/analysis/calibration.h"
#include "quant/checkpoint/checkpoint.h"
#include "quant/cli/partial.h"
#include "quant/cli/token_options.h"
#include "quant/quantizer/fit_block.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/model.h"

namespace sluice {

// Layers in ascending order, each once.
class LayerFits {
 public:
  virtual ~LayerFits() = default;
  // `weights` are the checkpoint's of layer `info.layer`.
  virtual Expected<BlockFit> Fit(const LayerInfo& info, const FfnWeights& weights) = 0;
  // After the last layer: the model's KL divergence in nats per token on a part of the text;
  // nothing where there is no text.
  virtual Expected<std::optional<double>> Loss() { return std::nullopt; }
};

// On captured inputs: each layer for itself. A layer without inputs is rounded to nearest, and the
// fits' notes say so.
std::unique_ptr<LayerFits> FitsFromCalibration(const Calibration& calibration,
                                               const FitOptions& options, const ThreadPool& pool);

struct TokenFitSettings {
  std::string model;
  std::optional<std::string> config;
  TokenOptions tokens;  // has a text
  FitOptions fit;
  std::string partial;  // the folder
  bool resume = false;
};

// On a text, layer by layer. `layers` are the layers to come. Errors: those of Decoder::Open,
// ReadTokens and PartialResult::Open.
Expected<std::unique_ptr<LayerFits>> FitsFromTokens(const TokenFitSettings& settings,
                                                    const std::vector<LayerInfo>& layers,
                                                    const ThreadPool& pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_LAYER_FITS_H_
