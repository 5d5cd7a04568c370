#include "quant/checkpoint/config.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <ranges>
#include <utility>

#include "quant/checkpoint/json_config.h"
#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// What hidden_act and its like may be, as transformers' ACT2FN reads them.
constexpr std::pair<std::string_view, Activation> kActivationNames[] = {
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kRelu2},
    {"sigmoid", Activation::kSigmoid},
    {"linear", Activation::kIdentity}};

std::string Joined(auto&& names) {
  std::string list;
  for (const std::string_view name : names) {
    if (!list.empty()) list += ", ";
    list += name;
  }
  return list;
}

Expected<Activation> ActivationOf(const JsonConfig& config, std::string_view key,
                                  std::string_view value) {
  const auto* found =
      std::ranges::find(kActivationNames, value, [](const auto& entry) { return entry.first; });
  if (found != std::end(kActivationNames)) return found->second;
  return Fail(ErrorCode::kUnsupported, "{}: {} is {}, which is not supported; known: {}",
              config.path(), key, Quote(value),
              Joined(std::views::transform(kActivationNames, [](auto e) { return e.first; })));
}

Expected<Activation> ReadActivation(const JsonConfig& config, const ActivationRule& rule) {
  if (!rule.overriding_key.empty()) {
    SLUICE_ASSIGN(const auto name, config.String(rule.overriding_key));
    if (name) return ActivationOf(config, rule.overriding_key, *name);
  }
  if (rule.key.empty()) return rule.absent;
  SLUICE_ASSIGN(const auto name, config.String(rule.key));
  if (!name) return rule.absent;
  SLUICE_ASSIGN(const Activation activation, ActivationOf(config, rule.key, *name));
  if (!rule.any_gelu_is_tanh) return activation;
  if (activation == Activation::kGelu || activation == Activation::kGeluTanh) {
    return Activation::kGeluTanh;
  }
  return Fail(ErrorCode::kUnsupported,
              "{}: {} is {}, which this family does not use; {} would say so if it did",
              config.path(), rule.key, Quote(*name), rule.overriding_key);
}

// The row for a Hugging Face configuration, by its model_type or else its class.
Expected<const Architecture*> IdentifyHuggingFace(const JsonConfig& config) {
  SLUICE_ASSIGN(std::optional<std::string> type, config.String("model_type"));
  std::string_view key = "model_type";
  const Architecture* found = nullptr;
  if (type) {
    found = FindArchitecture(Dialect::kHuggingFace, *type);
  } else {
    key = "architectures";
    const Json* classes = config.Find(key);
    if (!classes->is_array() || classes->empty() || !classes->front().is_string()) {
      return config.Wrong(key, *classes, "not a list of class names");
    }
    type = classes->front().get<std::string>();
    found = FindArchitectureByClass(*type);
  }
  if (found != nullptr) return found;
  std::string lower = *type;
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  if (IsMixtureOfExperts(lower)) {
    return Fail(ErrorCode::kUnsupported, "{}: mixture of experts is not supported ({} is {})",
                config.path(), key, Quote(*type));
  }
  return Fail(ErrorCode::kUnsupported, "{}: {} is {}, a family that is not supported; known: {}",
              config.path(), key, Quote(*type), KnownArchitectures(Dialect::kHuggingFace));
}

// Meta's rule for the width of a gated block of about the weights of a vanilla one of 4·dim:
// https://github.com/meta-llama/llama/blob/main/llama/model.py
Expected<std::optional<ConfigSize>> MetaHiddenSize(const JsonConfig& config, uint64_t dim) {
  SLUICE_ASSIGN(const auto multiple, config.Size("multiple_of"));
  if (!multiple) return std::nullopt;
  SLUICE_ASSIGN(const double factor, config.Number("ffn_dim_multiplier", 1.0));
  const uint64_t two_thirds = 2 * (4 * dim) / 3;
  const double scaled = std::floor(factor * static_cast<double>(two_thirds));
  if (!(scaled >= 1.0 && scaled <= static_cast<double>(kMaxConfigSize))) {
    return config.Wrong("ffn_dim_multiplier", *config.Find("ffn_dim_multiplier"),
                        "not a factor for a width");
  }
  const uint64_t width = static_cast<uint64_t>(scaled);
  const uint64_t d_ff = (width + multiple->value - 1) / multiple->value * multiple->value;
  return ConfigSize{d_ff, std::format("the width by dim {}, multiple_of {}, ffn_dim_multiplier {},",
                                      dim, multiple->value, factor)};
}

Status ReadSizes(const JsonConfig& config, ModelConfig& model) {
  const SizeKeys& keys = model.architecture->sizes;
  SLUICE_ASSIGN(model.d_model, config.Size(keys.d_model));
  SLUICE_ASSIGN(model.layers, config.Size(keys.layers));
  SLUICE_ASSIGN(std::optional<ConfigSize> d_ff, config.Size(keys.d_ff));
  if (!d_ff && model.d_model) {
    const uint64_t d = model.d_model->value;
    if (keys.default_d_ff != 0) {
      d_ff = ConfigSize{keys.default_d_ff * d, std::format("{} (absent, so {} times {})", keys.d_ff,
                                                           keys.default_d_ff, keys.d_model)};
    } else if (model.architecture->dialect == Dialect::kMeta) {
      SLUICE_ASSIGN(d_ff, MetaHiddenSize(config, d));
    }
  }
  if (d_ff) {
    model.d_ff = {d_ff->value};
    model.d_ff_key = d_ff->key;
  }
  return {};
}

Expected<ModelConfig> ReadFamily(const JsonConfig& config, const Architecture* architecture) {
  ModelConfig model;
  model.path = config.path();
  model.architecture = architecture;
  SLUICE_TRY(config.CheckDense());
  SLUICE_ASSIGN(model.activation, ReadActivation(config, architecture->activation));
  model.biases = architecture->biases;
  if (model.biases == Biases::kMlpBias) {
    SLUICE_ASSIGN(const bool biased, config.Flag("mlp_bias"));
    model.biases = biased ? Biases::kAlways : Biases::kNever;
  }
  SLUICE_TRY(ReadSizes(config, model));
  return model;
}

Expected<ModelConfig> ReadHuggingFace(const JsonConfig& config) {
  SLUICE_ASSIGN(const LanguageModel model, FindLanguageModel(config));
  return ReadFamily(model.config, model.architecture);
}

Expected<ModelConfig> ReadJson(const JsonConfig& config) {
  if (config.Find("model_type") != nullptr || config.Find("architectures") != nullptr) {
    return ReadHuggingFace(config);
  }
  if (config.Find("dim") != nullptr) {
    const bool states_width = config.Find("hidden_dim") != nullptr;
    return ReadFamily(
        config, FindArchitecture(Dialect::kMeta, states_width ? "hidden_dim" : "multiple_of"));
  }
  return Fail(ErrorCode::kUnsupported,
              "{}: not a model's configuration: it has neither model_type nor architectures "
              "(Hugging Face) nor dim (Meta's params.json)",
              config.path());
}

// The row for a GGUF file.
Expected<const Architecture*> IdentifyGguf(const std::string& path, const Gguf& gguf) {
  constexpr std::string_view kKey = "general.architecture";
  SLUICE_ASSIGN(const auto name, gguf.String(kKey));
  if (!name) return Fail(ErrorCode::kUnsupported, "{}: the metadata lacks {}", path, kKey);
  SLUICE_ASSIGN(const auto experts, gguf.Unsigned(std::string(*name) + ".expert_count"));
  if (IsMixtureOfExperts(*name) || experts.value_or(0) > 0) {
    return Fail(ErrorCode::kUnsupported,
                "{}: mixture of experts is not supported ({} is {}, expert_count {})", path, kKey,
                Quote(*name), experts.value_or(0));
  }
  const Architecture* architecture = FindArchitecture(Dialect::kGguf, *name);
  if (architecture != nullptr) return architecture;
  return Fail(ErrorCode::kUnsupported, "{}: {} is {}, a family that is not supported; known: {}",
              path, kKey, Quote(*name), KnownArchitectures(Dialect::kGguf));
}

// In GGUF a size has the architecture's name before it.
Expected<std::optional<ConfigSize>> GgufSize(const std::string& path, const Gguf& gguf,
                                             const Architecture& architecture,
                                             std::string_view key) {
  std::string full = std::format("{}.{}", architecture.key, key);
  SLUICE_ASSIGN(const auto value, gguf.Unsigned(full));
  if (!value) return std::nullopt;
  if (*value > kMaxConfigSize) {
    return Fail(ErrorCode::kUnsupported, "{}: {} is {}, larger than any model's", path, full,
                *value);
  }
  return ConfigSize{*value, std::move(full)};
}

}  // namespace

Expected<LanguageModel> FindLanguageModel(const JsonConfig& config) {
  SLUICE_ASSIGN(const Architecture* architecture, IdentifyHuggingFace(config));
  const Json* nested = architecture->nested.empty() ? nullptr : config.Find(architecture->nested);
  if (nested == nullptr) return LanguageModel{architecture, config};
  if (!nested->is_object()) return config.Wrong(architecture->nested, *nested, "not an object");
  const JsonConfig inner(config.path(), *nested);
  if (inner.Find("model_type") != nullptr) {
    SLUICE_ASSIGN(architecture, IdentifyHuggingFace(inner));
  }
  return LanguageModel{architecture, inner};
}

std::optional<uint64_t> ModelConfig::DFf(uint64_t layer) const {
  if (d_ff.size() == 1) return d_ff.front();
  return layer < d_ff.size() ? std::optional(d_ff[static_cast<size_t>(layer)]) : std::nullopt;
}

Expected<ModelConfig> ParseConfig(const std::string& path, std::string_view text) {
  SLUICE_ASSIGN(const Json json, ParseJsonObject(path, text));
  return ReadJson(JsonConfig(path, json));
}

Expected<ModelConfig> ReadConfig(const std::string& path) {
  SLUICE_ASSIGN(const Json json, ReadJsonFile(path));
  return ReadJson(JsonConfig(path, json));
}

Expected<ModelConfig> ReadGgufConfig(const std::string& path, const Gguf& gguf) {
  SLUICE_ASSIGN(const Architecture* architecture, IdentifyGguf(path, gguf));
  SLUICE_ASSIGN(const auto parts, gguf.Unsigned("split.count"));
  if (parts.value_or(1) > 1) {
    return Fail(ErrorCode::kUnsupported,
                "{}: one of the {} parts of a split GGUF; merge them with llama.cpp's gguf-split",
                path, *parts);
  }
  ModelConfig model;
  model.path = path;
  model.architecture = architecture;
  model.activation = architecture->activation.absent;
  model.biases = architecture->biases;
  const SizeKeys& keys = architecture->sizes;
  SLUICE_ASSIGN(model.d_model, GgufSize(path, gguf, *architecture, keys.d_model));
  SLUICE_ASSIGN(model.layers, GgufSize(path, gguf, *architecture, keys.layers));
  model.d_ff_key = std::format("{}.{}", architecture->key, keys.d_ff);
  SLUICE_ASSIGN(auto widths, gguf.UnsignedArray(model.d_ff_key));
  if (widths) model.d_ff = *std::move(widths);
  return model;
}

}  // namespace sluice
