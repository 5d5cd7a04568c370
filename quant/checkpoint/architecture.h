// What each model family is: how it names and stores its feed-forward blocks, and where its
// configuration says the rest. A family is one row of a table; to add one, add a row.
#ifndef SLUICE_QUANT_CHECKPOINT_ARCHITECTURE_H_
#define SLUICE_QUANT_CHECKPOINT_ARCHITECTURE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sluice/format.h"

namespace sluice {

// Who wrote the configuration, and so what its keys are.
enum class Dialect {
  kHuggingFace,  // config.json, with a model_type
  kMeta,         // params.json of Meta's and Mistral's own releases
  kGguf,         // the metadata of a GGUF file, with a general.architecture
};

// Of a weight tensor in the file. It follows from the family, never from the shape: a square matrix
// would tell nothing.
enum class Orientation {
  kOutIn,  // PyTorch's nn.Linear: [out, in]
  kInOut,  // GPT-2's Conv1D: [in, out]
};

enum class Biases {
  kNever,
  kAlways,
  kOptional,  // where the file has them
  kMlpBias,   // where the configuration's mlp_bias is true
};

// Tensors are called PREFIX LAYERS N "." MATRIX ".weight" (or ".bias"), N being the layer's number:
// "model." "layers." "3" "." "mlp.gate_proj" ".weight".
struct Naming {
  std::span<const std::string_view> prefixes;  // any one of them, the same for the whole file
  std::string_view layers;
  PerMatrix<std::string_view> matrices;  // an empty gate: an ungated block
  // The one tensor that holds gate's rows and then up's; empty: they are apart. `matrices` then
  // says what the halves are called.
  std::string_view fused = {};
  Orientation orientation = Orientation::kOutIn;
};

struct ActivationRule {
  std::string_view key;  // of the configuration; empty: the family has but one activation
  std::string_view overriding_key;  // goes before `key` where it is present
  // Gemma: `key` says only that it is some GELU; all of them mean the tanh form.
  bool any_gelu_is_tanh = false;
  Activation absent = Activation::kSilu;  // the default of the family's configuration class
};

// Keys of the configuration that a tensor's shape must agree with; in GGUF they follow the
// architecture's name and a dot.
struct SizeKeys {
  std::string_view d_model;
  std::string_view d_ff;
  std::string_view layers;
  uint32_t default_d_ff = 0;  // in units of d_model, where the key is absent or null; 0: no default
};

struct Architecture {
  Dialect dialect = Dialect::kHuggingFace;
  std::string_view key;   // the model_type or general.architecture that means it
  std::string_view name;  // what sluice calls it
  std::string_view
      class_stem;  // "Llama" of LlamaForCausalLM, for configurations without model_type
  std::span<const Naming> namings;
  SizeKeys sizes;
  ActivationRule activation;
  Biases biases = Biases::kNever;
  // A model with several towers nests the configuration of its language model under this key.
  std::string_view nested = {};
};

// Null if there is none.
const Architecture* FindArchitecture(Dialect dialect, std::string_view key);
// By the name of a Hugging Face model class, e.g. "LlamaForCausalLM".
const Architecture* FindArchitectureByClass(std::string_view class_name);
// "llama, mistral, …" of one dialect.
std::string KnownArchitectures(Dialect dialect);

// Whether a family is known to be a mixture of experts by its name alone.
bool IsMixtureOfExperts(std::string_view key);

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_ARCHITECTURE_H_
