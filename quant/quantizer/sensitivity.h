// What each format of each matrix costs the model, measured.
#ifndef SLUICE_QUANT_QUANTIZER_SENSITIVITY_H_
#define SLUICE_QUANT_QUANTIZER_SENSITIVITY_H_

#include <functional>
#include <optional>
#include <vector>

#include "quant/decoder/decoder.h"
#include "quant/decoder/tokens.h"
#include "quant/quantizer/choose_formats.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

struct SensitivityOptions {
  size_t max_tokens = 1024;  // of the text, whole windows
  std::vector<WeightFormat> formats;
  std::optional<ActivationFormat> activations;  // none: each format's default
  // Called after each layer with (layers done, layers in all).
  std::function<void(size_t, size_t)> progress;
};

// For each layer, the model's KL divergence when that block alone is rounded, all else in FP32, to
// int4 in blocks of 32 by the scale search (mse). It is shared out to matrices and formats by the
// squared error that each of them alone makes in the block's output: for small errors the
// divergence is a quadratic form in them. One layer's weights are in memory at a time, and a stream
// for each layer.
//
// Errors: those of the decoder and of FitMatrix.
Expected<std::vector<MatrixOptions>> MeasureSensitivity(const Decoder& decoder,
                                                        const Tokens& tokens,
                                                        const SensitivityOptions& options,
                                                        const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_SENSITIVITY_H_
