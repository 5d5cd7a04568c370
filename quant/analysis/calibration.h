// The inputs that blocks are judged on.
#ifndef SLUICE_QUANT_ANALYSIS_CALIBRATION_H_
#define SLUICE_QUANT_ANALYSIS_CALIBRATION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sluice/error.h"
#include "src/file/safetensors.h"

namespace sluice {

// Block inputs by layer: captured from real text (a safetensors file with
// `model.layers.N.mlp.input` [t, d], F32, per layer, whatever the family), or N(0, 1) when there is
// no file.
class Calibration {
 public:
  // Errors: no safetensors file; one without any such tensor; one whose dtype or rank is wrong.
  static Expected<Calibration> Open(const std::string& path);
  // Each layer gets other values; the same seed gives the same ones everywhere.
  static Calibration Random(size_t tokens, uint64_t seed);

  // What the tensor of a layer's inputs is called.
  static std::string TensorName(size_t layer);

  bool random() const { return !file_; }
  const std::string& source() const { return source_; }  // the path, or "random"
  size_t tokens() const { return tokens_; }              // the most that any layer has

  // Row-major [tokens, d_model], at least one token. nullopt: the file has nothing for this layer
  // (the caller says so). Errors: a wrong width, NaN or Inf (tensor and index named).
  Expected<std::optional<std::vector<float>>> Inputs(size_t layer, size_t d_model) const;

 private:
  std::string source_ = "random";
  std::optional<SafetensorsFile> file_;
  size_t tokens_ = 0;
  uint64_t seed_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_CALIBRATION_H_
