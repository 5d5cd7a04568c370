#include "quant/decoder/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>

#include "quant/checkpoint/config.h"
#include "quant/decoder/config_sources.h"
#include "quant/decoder/decoder_family.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// Beyond any model; keeps products of sizes inside 64 bits and BLAS's 32.
constexpr size_t kMaxHeads = size_t{1} << 16;
constexpr size_t kMaxHeadDim = size_t{1} << 16;

Status CheckNumber(const std::string& path, std::string_view what, double value, bool zero) {
  if (std::isfinite(value) && (zero ? value >= 0 : value > 0)) return {};
  return Fail(ErrorCode::kCorrupt, "{}: {} is {}, not a {}positive number", path, what, value,
              zero ? "non-negative or " : "");
}

Status CheckRope(const std::string& path, const RopeSettings& rope) {
  SLUICE_TRY(CheckNumber(path, "the base of the rotary positions", rope.theta, false));
  SLUICE_TRY(CheckNumber(path, "the factor of the rotary scaling", rope.factor, false));
  if (rope.scaling != RopeScaling::kLlama3) return {};
  SLUICE_TRY(CheckNumber(path, "low_freq_factor", rope.low_factor, false));
  SLUICE_TRY(CheckNumber(path, "original_max_position_embeddings", rope.original_context, false));
  if (rope.high_factor > rope.low_factor && std::isfinite(rope.high_factor)) return {};
  return Fail(ErrorCode::kCorrupt, "{}: high_freq_factor is {}, not above low_freq_factor {}", path,
              rope.high_factor, rope.low_factor);
}

// What no source can have checked on its own.
Status Check(const std::string& path, const DecoderConfig& config) {
  const auto fits = [](size_t n, size_t most) { return n > 0 && n <= most; };
  if (!fits(config.heads, kMaxHeads) || !fits(config.kv_heads, kMaxHeads) ||
      config.heads % config.kv_heads != 0) {
    return Fail(ErrorCode::kCorrupt, "{}: {} heads cannot share {} heads of keys and values", path,
                config.heads, config.kv_heads);
  }
  if (!fits(config.head_dim, kMaxHeadDim) || config.head_dim % 2 != 0) {
    return Fail(ErrorCode::kCorrupt, "{}: heads of {} values ({} wide, {} heads): not an even size",
                path, config.head_dim, config.d_model, config.heads);
  }
  SLUICE_TRY(CheckNumber(path, "the epsilon of the norms", config.norm_eps, true));
  SLUICE_TRY(CheckNumber(path, "the scale of the attention", config.attention_scale, false));
  SLUICE_TRY(CheckNumber(path, "the cap of the attention", config.attention_cap, true));
  SLUICE_TRY(CheckNumber(path, "the cap of the logits", config.logit_cap, true));
  SLUICE_TRY(CheckRope(path, config.rope));
  return CheckRope(path, config.local_rope);
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeSettings& rope, size_t head_dim) {
  std::vector<float> frequencies(head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    double frequency = std::pow(rope.theta, exponent);
    if (rope.scaling == RopeScaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == RopeScaling::kLlama3) {
      // Turns within the original context decide: few are slowed down, many are not.
      const double turns = rope.original_context * frequency / (2 * std::numbers::pi);
      const double ramp = (turns - rope.low_factor) / (rope.high_factor - rope.low_factor);
      const double kept = std::clamp(ramp, 0.0, 1.0);
      frequency *= kept + (1 - kept) / rope.factor;
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

Expected<DecoderConfig> ReadDecoderConfig(const Checkpoint& checkpoint) {
  const Architecture& architecture = *checkpoint.config().architecture;
  const std::string& path = checkpoint.config().path;
  const DecoderFamily* family = FindDecoderFamily(architecture.name);
  if (family == nullptr || architecture.dialect == Dialect::kMeta) {
    return Fail(ErrorCode::kUnsupported,
                "{}: running whole models of the family {}{} is not supported; known: {}", path,
                architecture.name,
                architecture.dialect == Dialect::kMeta ? " from Meta's own files" : "",
                KnownDecoderFamilies());
  }
  DecoderConfig config;
  config.d_model = checkpoint.layers().front().d_model;
  config.layers.resize(checkpoint.layers().size());
  config.embedding_scale = family->gemma ? std::sqrt(static_cast<double>(config.d_model)) : 1.0;
  config.post_norms = family->post_norms;
  config.qk_norm = family->qk_norm;
  SLUICE_TRY(architecture.dialect == Dialect::kGguf
                 ? ReadGgufDecoder(checkpoint, *family, config)
                 : ReadHuggingFaceDecoder(checkpoint, *family, config));
  SLUICE_TRY(Check(path, config));
  return config;
}

}  // namespace sluice
