#include "quant/decoder/decoder_tensors.h"

#include <cstdint>
#include <format>
#include <limits>
#include <string>
#include <string_view>

#include "quant/checkpoint/config.h"
#include "quant/decoder/decoder_family.h"
#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

constexpr std::string_view kModelPrefix = "model.";

class Finder {
 public:
  Finder(const Checkpoint& checkpoint, const DecoderConfig& config)
      : checkpoint_(checkpoint),
        source_(checkpoint.source()),
        architecture_(*checkpoint.config().architecture),
        config_(config),
        names_(NamesOf(architecture_.dialect, config.post_norms)) {}

  Expected<DecoderTensors> Run() {
    SLUICE_TRY(CheckLayerNumbers());
    SLUICE_TRY(FindPrefix());
    DecoderTensors found;
    SLUICE_ASSIGN(found.embedding, Embedding());
    SLUICE_ASSIGN(found.output, Output(*found.embedding));
    SLUICE_ASSIGN(found.final_norm,
                  Vector(Weight(prefix_ + std::string(names_.final_norm)), config_.d_model));
    SLUICE_ASSIGN(found.rope_divisors, RopeDivisors());
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      SLUICE_ASSIGN(LayerTensors layer, Layer(std::format("{}{}{}.", prefix_, names_.layers, i)));
      found.layers.push_back(layer);
    }
    return found;
  }

 private:
  static std::string Weight(const std::string& base) { return base + ".weight"; }

  // A model runs whole or not at all.
  Status CheckLayerNumbers() const {
    const std::vector<SourceLayer>& layers = checkpoint_.layers();
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].layer == i) continue;
      return Fail(ErrorCode::kNotFound, "{}: layer {} is missing, so the model cannot be run",
                  source_.path(), i);
    }
    const auto& stated = checkpoint_.config().layers;
    if (!stated || stated->value == layers.size()) return {};
    return Fail(ErrorCode::kCorrupt, "{}: {} layers, but {} is {}, so the model cannot be run",
                source_.path(), layers.size(), stated->key, stated->value);
  }

  // The one under which the embedding lies.
  Status FindPrefix() {
    std::string looked_for;
    for (const Naming& naming : architecture_.namings) {
      for (const std::string_view prefix : naming.prefixes) {
        const std::string name = Weight(std::string(prefix) + std::string(names_.embedding));
        prefix_ = prefix;
        if (source_.Find(name) != nullptr) return {};
        looked_for += (looked_for.empty() ? "" : ", ") + name;
      }
    }
    return Fail(ErrorCode::kNotFound, "{}: no embedding; looked for {}", source_.path(),
                looked_for);
  }

  Expected<const SourceTensor*> Shaped(const std::string& name,
                                       const std::vector<uint64_t>& shape) const {
    SLUICE_ASSIGN(const SourceTensor* tensor, source_.FindReadable(name));
    if (tensor->shape == shape) return tensor;
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} is {}, expected {} (by {})",
                tensor->file->path(), Quote(name), ShapeText(tensor->shape), ShapeText(shape),
                checkpoint_.config().path);
  }

  Expected<const SourceTensor*> Vector(const std::string& name, uint64_t size) const {
    return Shaped(name, {size});
  }

  Expected<const SourceTensor*> Embedding() const {
    const std::string name = Weight(prefix_ + std::string(names_.embedding));
    SLUICE_ASSIGN(const SourceTensor* tensor, source_.FindReadable(name));
    if (tensor->shape.size() != 2 || tensor->shape[1] != config_.d_model || tensor->shape[0] == 0 ||
        tensor->shape[0] > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} is {}, expected [vocabulary, {}]",
                  tensor->file->path(), Quote(name), ShapeText(tensor->shape), config_.d_model);
    }
    return tensor;
  }

  // The head lies beside the model, whose prefix ends in "model." where it has one.
  std::string OutputName() const {
    if (architecture_.dialect == Dialect::kGguf) return "output.weight";
    std::string outer = prefix_;
    if (outer.ends_with(kModelPrefix)) outer.resize(outer.size() - kModelPrefix.size());
    std::string name = outer + "lm_head.weight";
    return source_.Find(name) != nullptr ? name : "lm_head.weight";
  }

  Expected<const SourceTensor*> Output(const SourceTensor& embedding) const {
    const std::string name = OutputName();
    if (config_.output_matrix == Presence::kNever ||
        (config_.output_matrix == Presence::kOptional && source_.Find(name) == nullptr)) {
      return &embedding;
    }
    return Shaped(name, embedding.shape);
  }

  Expected<const SourceTensor*> RopeDivisors() const {
    constexpr std::string_view kName = "rope_freqs.weight";
    if (architecture_.dialect != Dialect::kGguf || source_.Find(kName) == nullptr) return nullptr;
    return Vector(std::string(kName), config_.head_dim / 2);
  }

  Expected<LinearTensors> Linear(const std::string& base, uint64_t rows, uint64_t cols,
                                 Presence bias) const {
    LinearTensors linear;
    SLUICE_ASSIGN(linear.weight, Shaped(Weight(base), {rows, cols}));
    const std::string name = base + ".bias";
    const bool present = source_.Find(name) != nullptr;
    if (bias == Presence::kNever && present) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: tensor {} is there, but by {} the attention has no such bias",
                  source_.path(), Quote(name), checkpoint_.config().path);
    }
    if (bias == Presence::kAlways || present) {
      SLUICE_ASSIGN(linear.bias, Vector(name, rows));
    }
    return linear;
  }

  // A norm that the family has, or that it has not.
  Expected<const SourceTensor*> Norm(const std::string& layer, std::string_view name, bool used,
                                     uint64_t size) const {
    if (used) return Vector(Weight(layer + std::string(name)), size);
    const std::string unused = Weight(layer + std::string(name));
    if (name.empty() || source_.Find(unused) == nullptr) return nullptr;
    return Fail(ErrorCode::kUnsupported,
                "{}: tensor {} is there, but models of the family {} have none", source_.path(),
                Quote(unused), architecture_.name);
  }

  Expected<LayerTensors> Layer(const std::string& prefix) const {
    const uint64_t d = config_.d_model;
    const uint64_t q = config_.heads * config_.head_dim;
    const uint64_t kv = config_.kv_heads * config_.head_dim;
    const auto base = [&](std::string_view name) { return prefix + std::string(name); };
    LayerTensors layer;
    SLUICE_ASSIGN(layer.q, Linear(base(names_.q), q, d, config_.qkv_bias));
    SLUICE_ASSIGN(layer.k, Linear(base(names_.k), kv, d, config_.qkv_bias));
    SLUICE_ASSIGN(layer.v, Linear(base(names_.v), kv, d, config_.qkv_bias));
    SLUICE_ASSIGN(layer.output, Linear(base(names_.output), d, q, config_.output_bias));
    SLUICE_ASSIGN(layer.q_norm, Norm(prefix, names_.q_norm, config_.qk_norm, config_.head_dim));
    SLUICE_ASSIGN(layer.k_norm, Norm(prefix, names_.k_norm, config_.qk_norm, config_.head_dim));
    SLUICE_ASSIGN(layer.attention_norm, Norm(prefix, names_.attention_norm, true, d));
    SLUICE_ASSIGN(layer.block_norm, Norm(prefix, names_.block_norm, true, d));
    SLUICE_ASSIGN(layer.post_attention_norm,
                  Norm(prefix, names_.post_attention_norm, config_.post_norms, d));
    SLUICE_ASSIGN(layer.post_block_norm,
                  Norm(prefix, names_.post_block_norm, config_.post_norms, d));
    return layer;
  }

  const Checkpoint& checkpoint_;
  const TensorSource& source_;
  const Architecture& architecture_;
  const DecoderConfig& config_;
  const DecoderNames& names_;
  std::string prefix_;
};

}  // namespace

Expected<DecoderTensors> FindDecoderTensors(const Checkpoint& checkpoint,
                                            const DecoderConfig& config) {
  return Finder(checkpoint, config).Run();
}

}  // namespace sluice
