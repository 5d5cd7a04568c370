#include <algorithm>
#include <array>
#include <cmath>
#include <format>
#include <optional>
#include <string>

#include "quant/checkpoint/config.h"
#include "quant/checkpoint/json_config.h"
#include "quant/decoder/config_sources.h"
#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// Not a number of the model's, so that an absent key can be told from any value.
constexpr double kAbsent = -1;

class Reader {
 public:
  Reader(const JsonConfig& outer, const JsonConfig& json, const DecoderFamily& family,
         DecoderConfig& config)
      : outer_(outer), json_(json), family_(family), config_(config) {}

  Status Run() {
    SLUICE_TRY(ReadHeads());
    SLUICE_TRY(ReadScores());
    SLUICE_TRY(ReadTensors());
    SLUICE_TRY(ReadRotation());
    return ReadWindows();
  }

 private:
  Expected<size_t> Size(std::string_view key, size_t absent) const {
    SLUICE_ASSIGN(const auto size, json_.Size(key));
    return size ? static_cast<size_t>(size->value) : absent;
  }

  Status ReadHeads() {
    SLUICE_ASSIGN(config_.heads, Size("num_attention_heads", family_.heads));
    // Absent, it is the class's default; null means as many as heads.
    const bool null = json_.IsNull("num_key_value_heads");
    const size_t absent = null || family_.kv_heads == 0 ? config_.heads : family_.kv_heads;
    SLUICE_ASSIGN(config_.kv_heads, Size("num_key_value_heads", absent));
    const size_t even = config_.heads == 0 ? 0 : config_.d_model / config_.heads;
    SLUICE_ASSIGN(config_.head_dim,
                  Size("head_dim", family_.head_dim != 0 ? family_.head_dim : even));
    SLUICE_ASSIGN(config_.context, Size("max_position_embeddings", 0));
    SLUICE_ASSIGN(config_.norm_eps, json_.Number("rms_norm_eps", 1e-6));
    if (family_.gemma) config_.norm_offset = 1;
    return {};
  }

  // A number that null turns off.
  Expected<double> Cap(std::string_view key, double absent) const {
    if (json_.IsNull(key)) return 0.0;
    return json_.Number(key, absent);
  }

  Status ReadScores() {
    double scalar = static_cast<double>(config_.head_dim);
    if (family_.query_scalar) {
      SLUICE_ASSIGN(scalar, json_.Number("query_pre_attn_scalar", 256));
    }
    config_.attention_scale = 1 / std::sqrt(scalar);
    if (family_.post_norms) {
      SLUICE_ASSIGN(config_.attention_cap, Cap("attn_logit_softcapping", family_.attention_cap));
      SLUICE_ASSIGN(config_.logit_cap, Cap("final_logit_softcapping", family_.logit_cap));
    }
    SLUICE_ASSIGN(const bool both_ways, json_.Flag("use_bidirectional_attention"));
    if (!both_ways) return {};
    return Fail(ErrorCode::kUnsupported,
                "{}: use_bidirectional_attention is true, but this is no language model then",
                json_.path());
  }

  Status ReadTensors() {
    if (family_.always_qkv_bias) {
      config_.qkv_bias = Presence::kAlways;
    } else {
      SLUICE_ASSIGN(const bool biased, json_.Flag("attention_bias"));
      config_.qkv_bias = config_.output_bias = biased ? Presence::kAlways : Presence::kNever;
    }
    bool tied = family_.tied;
    // A model with several towers may say it at the top.
    for (const JsonConfig* json : {&outer_, &json_}) {
      if (json->Find("tie_word_embeddings") == nullptr) continue;
      SLUICE_ASSIGN(tied, json->Flag("tie_word_embeddings"));
    }
    config_.output_matrix = tied ? Presence::kNever : Presence::kAlways;
    return {};
  }

  // ---- Rotary positions ----

  Status ReadRotation() {
    SLUICE_TRY(CheckWholeRotation(json_));
    config_.rope.theta = family_.theta;
    if (const Json* named = json_.Find("rope_parameters")) return ReadRopeParameters(*named);
    SLUICE_ASSIGN(config_.rope.theta, json_.Number("rope_theta", family_.theta));
    if (family_.local_rope) {
      SLUICE_ASSIGN(config_.local_rope.theta,
                    json_.Number("rope_local_base_freq", config_.local_rope.theta));
    }
    const Json* scaling = json_.Find("rope_scaling");
    return scaling == nullptr ? Status() : ReadRope("rope_scaling", *scaling, config_.rope);
  }

  // The newer form: one object with everything, or one for each kind of layer.
  Status ReadRopeParameters(const Json& json) {
    if (!family_.local_rope) return ReadRope("rope_parameters", json, config_.rope);
    if (!json.is_object()) return json_.Wrong("rope_parameters", json, "not an object");
    const JsonConfig kinds(json_.path(), json);
    const Json* full = kinds.Find("full_attention");
    const Json* sliding = kinds.Find("sliding_attention");
    if (full == nullptr || sliding == nullptr) {
      return json_.Wrong("rope_parameters", json, "without full_attention or sliding_attention");
    }
    SLUICE_TRY(ReadRope("rope_parameters.full_attention", *full, config_.rope));
    return ReadRope("rope_parameters.sliding_attention", *sliding, config_.local_rope);
  }

  Status CheckWholeRotation(const JsonConfig& json) const {
    SLUICE_ASSIGN(const double part, json.Number("partial_rotary_factor", 1));
    if (part == 1) return {};
    return Fail(ErrorCode::kUnsupported,
                "{}: partial_rotary_factor is {}; rotating a part of a head is not supported",
                json_.path(), part);
  }

  Status ReadRope(std::string_view key, const Json& value, RopeSettings& rope) const {
    if (!value.is_object()) return json_.Wrong(key, value, "not an object");
    const JsonConfig json(json_.path(), value);
    SLUICE_TRY(CheckWholeRotation(json));
    SLUICE_ASSIGN(rope.theta, json.Number("rope_theta", rope.theta));
    SLUICE_ASSIGN(const auto newer, json.String("rope_type"));
    SLUICE_ASSIGN(const auto older, json.String("type"));
    const std::string type = newer ? *newer : older.value_or("default");
    if (type == "default") return {};
    if (type != "linear" && type != "llama3") {
      return Fail(ErrorCode::kUnsupported,
                  "{}: {} of type {} is not supported; known: default, linear, llama3",
                  json_.path(), key, Quote(type));
    }
    rope.scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kLlama3;
    SLUICE_ASSIGN(rope.factor, Needed(json, key, "factor"));
    if (rope.scaling == RopeScaling::kLinear) return {};
    SLUICE_ASSIGN(rope.low_factor, Needed(json, key, "low_freq_factor"));
    SLUICE_ASSIGN(rope.high_factor, Needed(json, key, "high_freq_factor"));
    SLUICE_ASSIGN(rope.original_context, Needed(json, key, "original_max_position_embeddings"));
    return {};
  }

  Expected<double> Needed(const JsonConfig& json, std::string_view object,
                          std::string_view key) const {
    if (json.Find(key) != nullptr) return json.Number(key, kAbsent);
    return Fail(ErrorCode::kCorrupt, "{}: {} has no {}", json_.path(), object, key);
  }

  // ---- Windows ----

  Status ReadWindows() {
    if (family_.windows == WindowRule::kNone) return {};
    SLUICE_ASSIGN(const std::vector<bool> sliding, SlidingLayers());
    size_t window = json_.IsNull("sliding_window") ? 0 : family_.window;
    SLUICE_ASSIGN(window, Size("sliding_window", window));
    for (size_t i = 0; i < sliding.size(); ++i) {
      if (sliding[i]) config_.layers[i] = {window, family_.local_rope};
    }
    return {};
  }

  Expected<std::vector<bool>> SlidingLayers() const {
    const size_t layers = config_.layers.size();
    std::vector<bool> sliding(layers, family_.windows == WindowRule::kAllLayers);
    if (family_.windows == WindowRule::kAllLayers) return sliding;
    uint64_t first = 0;
    if (family_.windows == WindowRule::kFromLayer) {
      SLUICE_ASSIGN(const bool used, json_.Flag("use_sliding_window"));
      if (!used) return sliding;
      SLUICE_ASSIGN(first, FirstSliding());
    }
    if (const Json* types = json_.Find("layer_types")) return NamedLayers(*types);
    size_t period = family_.period;
    if (family_.windows == WindowRule::kAllButNth) {
      SLUICE_ASSIGN(period, Size("sliding_window_pattern", period));
    }
    for (size_t i = 0; i < layers; ++i) {
      sliding[i] = i >= first && (period == 0 || (i + 1) % period != 0);
    }
    return sliding;
  }

  // May be 0, which is no size.
  Expected<uint64_t> FirstSliding() const {
    constexpr std::string_view kKey = "max_window_layers";
    const Json* value = json_.Find(kKey);
    if (value == nullptr) return 28;
    if (!value->is_number_unsigned()) return json_.Wrong(kKey, *value, "not a number of layers");
    return value->get<uint64_t>();
  }

  Expected<std::vector<bool>> NamedLayers(const Json& types) const {
    constexpr std::string_view kKey = "layer_types";
    if (!types.is_array() || types.size() != config_.layers.size()) {
      return json_.Wrong(kKey, types,
                         std::format("not a list for {} layers", config_.layers.size()));
    }
    std::vector<bool> sliding;
    for (const Json& type : types) {
      sliding.push_back(type == "sliding_attention");
      if (sliding.back() || type == "full_attention") continue;
      return Fail(ErrorCode::kUnsupported,
                  "{}: {} has {}, which is not supported; known: full_attention, sliding_attention",
                  json_.path(), kKey, JsonText(type));
    }
    return sliding;
  }

  const JsonConfig& outer_;
  const JsonConfig& json_;
  const DecoderFamily& family_;
  DecoderConfig& config_;
};

}  // namespace

Status ReadHuggingFaceDecoder(const Checkpoint& checkpoint, const DecoderFamily& family,
                              DecoderConfig& config) {
  const std::string& path = checkpoint.config().path;
  SLUICE_ASSIGN(const Json json, ReadJsonFile(path));
  const JsonConfig outer(path, json);
  SLUICE_ASSIGN(const LanguageModel model, FindLanguageModel(outer));
  return Reader(outer, model.config, family, config).Run();
}

}  // namespace sluice
