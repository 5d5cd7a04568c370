#include <cmath>
#include <format>
#include <string>

#include "quant/checkpoint/config.h"
#include "quant/checkpoint/gguf.h"
#include "quant/checkpoint/json_config.h"
#include "quant/checkpoint/tensor_source.h"
#include "quant/decoder/config_sources.h"
#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

class Reader {
 public:
  Reader(const Checkpoint& checkpoint, const DecoderFamily& family, DecoderConfig& config)
      : path_(checkpoint.config().path),
        name_(checkpoint.config().architecture->key),
        gguf_(*checkpoint.source().gguf()),
        family_(family),
        config_(config) {}

  Status Run() {
    SLUICE_TRY(ReadHeads());
    SLUICE_TRY(ReadScores());
    SLUICE_TRY(ReadRotation());
    SLUICE_TRY(ReadWindows());
    // llama.cpp's converter reorders q and k for this family alone, and adds 1 to Gemma's norms.
    config_.interleaved_heads = family_.name == "llama";
    config_.norm_offset = 0;
    config_.qkv_bias = family_.always_qkv_bias ? Presence::kAlways : Presence::kOptional;
    config_.output_bias = Presence::kOptional;
    config_.output_matrix = Presence::kOptional;
    return {};
  }

 private:
  std::string Key(std::string_view key) const { return std::format("{}.{}", name_, key); }

  Expected<size_t> Size(std::string_view key, size_t absent) const {
    SLUICE_ASSIGN(const auto value, gguf_.Unsigned(Key(key)));
    return value ? Checked(key, *value) : absent;
  }

  Expected<size_t> Checked(std::string_view key, uint64_t value) const {
    if (value <= kMaxConfigSize) return static_cast<size_t>(value);
    return Fail(ErrorCode::kUnsupported, "{}: {} is {}, larger than any model's", path_, Key(key),
                value);
  }

  Expected<double> Number(std::string_view key, double absent) const {
    SLUICE_ASSIGN(const auto value, gguf_.Number(Key(key)));
    return value.value_or(absent);
  }

  // A number for all layers; where the file has one for each, they must be equal.
  Expected<size_t> Uniform(std::string_view key, size_t absent) const {
    SLUICE_ASSIGN(const auto values, gguf_.UnsignedArray(Key(key)));
    if (!values || values->empty()) return absent;
    for (const uint64_t value : *values) {
      if (value == values->front()) continue;
      return Fail(ErrorCode::kUnsupported,
                  "{}: {} is {} and {}; layers that differ in it are not "
                  "supported",
                  path_, Key(key), values->front(), value);
    }
    return Checked(key, values->front());
  }

  Status ReadHeads() {
    SLUICE_ASSIGN(config_.heads, Uniform("attention.head_count", 0));
    if (config_.heads == 0) {
      return Fail(ErrorCode::kCorrupt, "{}: the metadata lacks {}", path_,
                  Key("attention.head_count"));
    }
    SLUICE_ASSIGN(config_.kv_heads, Uniform("attention.head_count_kv", config_.heads));
    SLUICE_ASSIGN(config_.head_dim, Size("attention.key_length", config_.d_model / config_.heads));
    SLUICE_TRY(SameAsHead("attention.value_length"));
    SLUICE_TRY(SameAsHead("rope.dimension_count"));
    SLUICE_ASSIGN(config_.context, Size("context_length", 0));
    SLUICE_ASSIGN(config_.norm_eps, Number("attention.layer_norm_rms_epsilon", 1e-6));
    return {};
  }

  Status SameAsHead(std::string_view key) const {
    SLUICE_ASSIGN(const size_t size, Size(key, config_.head_dim));
    if (size == config_.head_dim) return {};
    return Fail(ErrorCode::kUnsupported,
                "{}: {} is {}, other than a head's {} values, which is not "
                "supported",
                path_, Key(key), size, config_.head_dim);
  }

  Status ReadScores() {
    const bool wide = config_.layers.size() == family_.gguf_wide_layers;
    const size_t scalar = wide ? config_.d_model / config_.heads : config_.head_dim;
    config_.attention_scale = 1 / std::sqrt(static_cast<double>(scalar));
    if (!family_.post_norms) return {};
    SLUICE_ASSIGN(config_.attention_cap, Number("attn_logit_softcapping", family_.attention_cap));
    SLUICE_ASSIGN(config_.logit_cap, Number("final_logit_softcapping", family_.logit_cap));
    return {};
  }

  // Llama 3's scaling is not in the metadata but in a tensor: see Decoder::Open.
  Status ReadRotation() {
    SLUICE_ASSIGN(config_.rope.theta, Number("rope.freq_base", family_.theta));
    SLUICE_ASSIGN(config_.local_rope.theta, Number("rope.freq_base_swa", config_.local_rope.theta));
    SLUICE_ASSIGN(const auto type, gguf_.String(Key("rope.scaling.type")));
    // Before it had a type it had a factor alone.
    SLUICE_ASSIGN(const double older, Number("rope.scale_linear", 1));
    SLUICE_ASSIGN(const double factor, Number("rope.scaling.factor", older));
    const std::string_view name = type ? *type : factor != 1 ? "linear" : "none";
    if (name == "none") return {};
    if (name != "linear") {
      return Fail(ErrorCode::kUnsupported,
                  "{}: {} is {}, which is not supported; known: none, linear", path_,
                  Key("rope.scaling.type"), Quote(name));
    }
    config_.rope.scaling = RopeScaling::kLinear;
    config_.rope.factor = factor;
    return {};
  }

  // Of the families in GGUF only Gemma's have windows; llama.cpp knows the pattern by the name.
  Status ReadWindows() {
    if (family_.windows != WindowRule::kAllButNth) return {};
    SLUICE_ASSIGN(const size_t window, Size("attention.sliding_window", 0));
    if (window == 0) {
      return Fail(ErrorCode::kCorrupt, "{}: the metadata lacks {}", path_,
                  Key("attention.sliding_window"));
    }
    SLUICE_ASSIGN(const size_t period, Size("attention.sliding_window_pattern", family_.period));
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      if (period == 0 || (i + 1) % period != 0) config_.layers[i] = {window, family_.local_rope};
    }
    return {};
  }

  const std::string& path_;
  const std::string_view name_;
  const Gguf& gguf_;
  const DecoderFamily& family_;
  DecoderConfig& config_;
};

}  // namespace

Status ReadGgufDecoder(const Checkpoint& checkpoint, const DecoderFamily& family,
                       DecoderConfig& config) {
  return Reader(checkpoint, family, config).Run();
}

}  // namespace sluice
