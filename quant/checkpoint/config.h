// What a model's configuration says about its feed-forward blocks.
#ifndef SLUICE_QUANT_CHECKPOINT_CONFIG_H_
#define SLUICE_QUANT_CHECKPOINT_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/checkpoint/architecture.h"
#include "quant/checkpoint/gguf.h"
#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

// A size, and what the configuration calls it: hidden_size.
struct ConfigSize {
  uint64_t value = 0;
  std::string key;
};

struct ModelConfig {
  std::string path;  // the file it was read from
  const Architecture* architecture = nullptr;
  Activation activation = Activation::kSilu;
  Biases biases = Biases::kNever;  // never kMlpBias: that is settled
  // What the configuration leaves out is not checked.
  std::optional<ConfigSize> d_model;
  std::optional<ConfigSize> layers;
  // One for all layers, or one for each (0: that layer has no feed-forward block).
  std::vector<uint64_t> d_ff;
  std::string d_ff_key;

  // Nothing if the configuration says none, or none for this layer.
  std::optional<uint64_t> DFf(uint64_t layer) const;
};

// A config.json of a Hugging Face model or a params.json of Meta's or Mistral's own; which of them
// it is shows in its keys. Errors name the key and its value: families that are not known, mixtures
// of experts, activations other than silu, swish, gelu, gelu_new, gelu_pytorch_tanh, relu, relu2,
// sigmoid, linear, and sizes that are no positive integers.
Expected<ModelConfig> ReadConfig(const std::string& path);
// The same of text in memory; `path` is for errors.
Expected<ModelConfig> ParseConfig(const std::string& path, std::string_view text);
// The same of a GGUF file's metadata.
Expected<ModelConfig> ReadGgufConfig(const std::string& path, const Gguf& gguf);

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_CONFIG_H_
