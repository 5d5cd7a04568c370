// The inputs of a model's blocks on real text, written to a file.
#ifndef SLUICE_QUANT_ANALYSIS_CAPTURE_H_
#define SLUICE_QUANT_ANALYSIS_CAPTURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "quant/decoder/decoder.h"
#include "quant/decoder/tokens.h"
#include "sluice/cpu.h"
#include "sluice/error.h"

namespace sluice {

struct CaptureOptions {
  size_t sample = 1024;  // tokens whose inputs are kept; the statistics are over all
  uint64_t seed = 1;     // of the choice of them
  ThreadPool* pool = nullptr;
  std::function<void(size_t done, size_t all)> progress;  // layers
};

// Runs the model in FP32 over all tokens, layer by layer, and writes what each block sees to the
// safetensors file `path`, which appears when it is complete: docs/CALIBRATION.md has its tensors.
// Memory: tokens · d_model floats, one layer, and some thousand tokens' intermediate values.
Status Capture(const Decoder& decoder, const Tokens& tokens, const CaptureOptions& options,
               const std::string& path);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_CAPTURE_H_
