#include "quant/checkpoint/architecture.h"

#include <algorithm>

namespace sluice {
namespace {

using std::string_view;

// ---- How tensors are called ----
// A model saved without its head lacks the prefix; one with a vision tower has a longer one.

constexpr string_view kLlamaPrefixes[] = {"model.", ""};
constexpr string_view kGemma3Prefixes[] = {"model.", "", "language_model.model.",
                                           "model.language_model."};
constexpr string_view kBertPrefixes[] = {"bert.", ""};
constexpr string_view kGpt2Prefixes[] = {"transformer.", ""};
constexpr string_view kNoPrefix[] = {""};

constexpr PerMatrix<string_view> kProjections = {{"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}};

// Meta numbers the matrices: w1 is activated, w3 is the linear branch, w2 comes back.
constexpr Naming kMetaNaming = {
    kNoPrefix, "layers.", {{"feed_forward.w1", "feed_forward.w3", "feed_forward.w2"}}};

constexpr Naming kLlamaNamings[] = {{kLlamaPrefixes, "layers.", kProjections}, kMetaNaming};
constexpr Naming kMetaNamings[] = {kMetaNaming};
constexpr Naming kSplitNamings[] = {{kLlamaPrefixes, "layers.", kProjections}};
constexpr Naming kGemma3Namings[] = {{kGemma3Prefixes, "layers.", kProjections}};
constexpr Naming kPhi3Namings[] = {
    {kLlamaPrefixes, "layers.", kProjections, "mlp.gate_up_proj", {}}};
constexpr Naming kBertNamings[] = {
    {kBertPrefixes, "encoder.layer.", {{"", "intermediate.dense", "output.dense"}}}};
constexpr Naming kGpt2Namings[] = {
    {kGpt2Prefixes, "h.", {{"", "mlp.c_fc", "mlp.c_proj"}}, "", Orientation::kInOut}};

// llama.cpp's converter has already transposed GPT-2.
constexpr Naming kGgufGated[] = {{kNoPrefix, "blk.", {{"ffn_gate", "ffn_up", "ffn_down"}}}};
constexpr Naming kGgufUngated[] = {{kNoPrefix, "blk.", {{"", "ffn_up", "ffn_down"}}}};
constexpr Naming kGgufFused[] = {
    {kNoPrefix, "blk.", {{"ffn_gate", "ffn_up", "ffn_down"}}, "ffn_up", {}}};

// ---- Where sizes and activation are said ----

constexpr SizeKeys kHfSizes = {"hidden_size", "intermediate_size", "num_hidden_layers"};
constexpr SizeKeys kGpt2Sizes = {"n_embd", "n_inner", "n_layer", 4};
constexpr SizeKeys kMetaSizes = {"dim", "hidden_dim", "n_layers"};
constexpr SizeKeys kGgufSizes = {"embedding_length", "feed_forward_length", "block_count"};

constexpr ActivationRule kHiddenActSilu = {"hidden_act", "", false, Activation::kSilu};
constexpr ActivationRule kHiddenActGelu = {"hidden_act", "", false, Activation::kGelu};
constexpr ActivationRule kGpt2Activation = {"activation_function", "", false,
                                            Activation::kGeluTanh};
// Gemma 1's first configurations said hidden_act "gelu" of weights trained with the tanh form:
// https://github.com/huggingface/transformers/pull/29402. Its later key is hidden_activation.
constexpr ActivationRule kGemmaActivation = {"hidden_act", "hidden_activation", true,
                                             Activation::kGeluTanh};
constexpr ActivationRule kSilu = {"", "", false, Activation::kSilu};
constexpr ActivationRule kGelu = {"", "", false, Activation::kGelu};
constexpr ActivationRule kGeluTanh = {"", "", false, Activation::kGeluTanh};

constexpr Dialect kHf = Dialect::kHuggingFace;
constexpr Dialect kGguf = Dialect::kGguf;
constexpr Dialect kMeta = Dialect::kMeta;

// Read from each family's configuration and model class in huggingface/transformers, and for GGUF
// from the graph that llama.cpp builds; BERT's GELU is the exact one of its authors, whatever
// llama.cpp computes.
constexpr Architecture kArchitectures[] = {
    {kHf, "llama", "llama", "Llama", kLlamaNamings, kHfSizes, kHiddenActSilu, Biases::kMlpBias},
    {kHf, "mistral", "mistral", "Mistral", kLlamaNamings, kHfSizes, kHiddenActSilu},
    {kHf, "qwen2", "qwen2", "Qwen2", kSplitNamings, kHfSizes, kHiddenActSilu},
    {kHf, "qwen3", "qwen3", "Qwen3", kSplitNamings, kHfSizes, kHiddenActSilu},
    {kHf, "smollm3", "smollm3", "SmolLM3", kSplitNamings, kHfSizes, kHiddenActSilu,
     Biases::kMlpBias},
    {kHf, "gemma", "gemma", "Gemma", kSplitNamings, kHfSizes, kGemmaActivation},
    {kHf, "gemma2", "gemma2", "Gemma2", kSplitNamings, kHfSizes, kGemmaActivation},
    {kHf, "gemma3", "gemma3", "Gemma3", kGemma3Namings, kHfSizes, kGemmaActivation, Biases::kNever,
     "text_config"},
    {kHf, "gemma3_text", "gemma3", "", kGemma3Namings, kHfSizes, kGemmaActivation},
    {kHf, "phi3", "phi3", "Phi3", kPhi3Namings, kHfSizes, kHiddenActSilu},
    {kHf, "bert", "bert", "Bert", kBertNamings, kHfSizes, kHiddenActGelu, Biases::kAlways},
    {kHf, "gpt2", "gpt2", "GPT2", kGpt2Namings, kGpt2Sizes, kGpt2Activation, Biases::kAlways},

    // Meta's configuration names no family: one that computes its width from multiple_of is Meta's
    // own, one that states it is Mistral's.
    {kMeta, "multiple_of", "llama", "", kMetaNamings, kMetaSizes, kSilu},
    {kMeta, "hidden_dim", "mistral", "", kMetaNamings, kMetaSizes, kSilu},

    {kGguf, "llama", "llama", "", kGgufGated, kGgufSizes, kSilu, Biases::kOptional},
    {kGguf, "qwen2", "qwen2", "", kGgufGated, kGgufSizes, kSilu},
    {kGguf, "qwen3", "qwen3", "", kGgufGated, kGgufSizes, kSilu},
    {kGguf, "smollm3", "smollm3", "", kGgufGated, kGgufSizes, kSilu, Biases::kOptional},
    {kGguf, "gemma", "gemma", "", kGgufGated, kGgufSizes, kGeluTanh},
    {kGguf, "gemma2", "gemma2", "", kGgufGated, kGgufSizes, kGeluTanh},
    {kGguf, "gemma3", "gemma3", "", kGgufGated, kGgufSizes, kGeluTanh},
    {kGguf, "phi3", "phi3", "", kGgufFused, kGgufSizes, kSilu},
    {kGguf, "bert", "bert", "", kGgufUngated, kGgufSizes, kGelu, Biases::kAlways},
    {kGguf, "gpt2", "gpt2", "", kGgufUngated, kGgufSizes, kGeluTanh, Biases::kAlways},
};

// How the names of those begin that do not contain "moe".
constexpr string_view kMixtures[] = {"mixtral", "dbrx", "deepseek", "gpt_oss", "gpt-oss",
                                     "gptoss",  "grok", "arctic",   "jamba",   "llama4"};

}  // namespace

const Architecture* FindArchitecture(Dialect dialect, string_view key) {
  const auto is = [&](const Architecture& a) { return a.dialect == dialect && a.key == key; };
  const Architecture* found = std::ranges::find_if(kArchitectures, is);
  return found == std::end(kArchitectures) ? nullptr : found;
}

const Architecture* FindArchitectureByClass(string_view class_name) {
  // What follows the stem must be the model's purpose: Qwen2MoeForCausalLM is no Qwen2.
  constexpr string_view kPurposes[] = {"For", "Model", "LMHead"};
  const auto is = [&](const Architecture& a) {
    if (a.class_stem.empty() || !class_name.starts_with(a.class_stem)) return false;
    const string_view rest = class_name.substr(a.class_stem.size());
    return std::ranges::any_of(kPurposes, [&](auto p) { return rest.starts_with(p); });
  };
  const Architecture* found = std::ranges::find_if(kArchitectures, is);
  return found == std::end(kArchitectures) ? nullptr : found;
}

std::string KnownArchitectures(Dialect dialect) {
  std::string list;
  for (const Architecture& a : kArchitectures) {
    if (a.dialect != dialect) continue;
    if (!list.empty()) list += ", ";
    list += a.key;
  }
  return list;
}

bool IsMixtureOfExperts(string_view key) {
  return key.contains("moe") ||
         std::ranges::any_of(kMixtures, [&](auto name) { return key.starts_with(name); });
}

}  // namespace sluice
