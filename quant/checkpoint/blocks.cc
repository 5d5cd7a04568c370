#include "quant/checkpoint/blocks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <format>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// How the tensors of expert routers and of experts are called, in Hugging Face's files and in GGUF.
constexpr std::array<std::string_view, 4> kExpertNames = {".experts.", ".block_sparse_moe.",
                                                          "_exps.", "ffn_gate_inp."};

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kBias = ".bias";

// The names of one file: a naming and the prefix it uses there.
struct Names {
  const Naming* naming = nullptr;
  std::string_view prefix;

  std::string Base(uint64_t layer, std::string_view matrix) const {
    return std::format("{}{}{}.{}", prefix, naming->layers, layer, matrix);
  }
  std::string_view Stored(Matrix m) const {
    const bool fused = !naming->fused.empty() && m != Matrix::kDown;
    return fused ? naming->fused : naming->matrices[m];
  }
  bool gated() const { return !naming->matrices[Matrix::kGate].empty(); }
};

// The layer of a tensor that `names` names, and what follows the number's dot.
struct ParsedName {
  uint32_t layer = 0;
  std::string_view rest;
};

std::optional<ParsedName> ParseName(const Names& names, std::string_view name) {
  if (!name.starts_with(names.prefix)) return std::nullopt;
  name.remove_prefix(names.prefix.size());
  if (!name.starts_with(names.naming->layers)) return std::nullopt;
  name.remove_prefix(names.naming->layers.size());
  ParsedName parsed;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), parsed.layer);
  const size_t digits = static_cast<size_t>(end - name.data());
  // "00" would be a second name for layer 0.
  if (error != std::errc() || digits == 0 || (digits > 1 && name[0] == '0')) return std::nullopt;
  name.remove_prefix(digits);
  if (!name.starts_with('.')) return std::nullopt;
  parsed.rest = name.substr(1);
  return parsed;
}

class BlockFinder {
 public:
  BlockFinder(const TensorSource& source, const ModelConfig& config)
      : source_(source), config_(config) {}

  Expected<Blocks> Run() {
    SLUICE_TRY(CheckDense());
    SLUICE_TRY(ChooseNames());
    Blocks found;
    for (const uint64_t layer : layers_) {
      SLUICE_ASSIGN(Block block, FindBlock(layer));
      if (!d_model_) d_model_ = block.layer.d_model;
      found.blocks.push_back(std::move(block));
    }
    SLUICE_TRY(CheckLayers(found.warnings));
    return found;
  }

 private:
  // ---- Names ----

  Status CheckDense() const {
    for (const SourceTensor& tensor : source_.tensors()) {
      for (const std::string_view part : kExpertNames) {
        if (tensor.name.contains(part)) {
          return Fail(ErrorCode::kUnsupported,
                      "{}: mixture of experts is not supported (tensor {})", source_.path(),
                      Quote(tensor.name));
        }
      }
    }
    return {};
  }

  // The layers of which a file has a weight under `names`.
  std::set<uint64_t> LayersUnder(const Names& names) const {
    std::set<std::string> wanted;
    for (const Matrix m : kMatrices) {
      if (!names.Stored(m).empty()) wanted.insert(std::string(names.Stored(m)) += kWeight);
    }
    std::set<uint64_t> layers;
    for (const SourceTensor& tensor : source_.tensors()) {
      const std::optional<ParsedName> parsed = ParseName(names, tensor.name);
      if (parsed && wanted.contains(std::string(parsed->rest))) layers.insert(parsed->layer);
    }
    return layers;
  }

  // The one naming and prefix that the file uses.
  Status ChooseNames() {
    std::string looked_for;
    for (const Naming& naming : config_.architecture->namings) {
      for (const std::string_view prefix : naming.prefixes) {
        const Names names{&naming, prefix};
        std::set<uint64_t> layers = LayersUnder(names);
        if (!looked_for.empty()) looked_for += ", ";
        looked_for +=
            std::format("{}{}N.{}{}", prefix, naming.layers, names.Stored(Matrix::kUp), kWeight);
        if (layers.empty()) continue;
        if (!layers_.empty()) {
          return Fail(ErrorCode::kUnsupported, "{}: two sets of feed-forward tensors: {} and {}",
                      source_.path(), names_.Base(*layers_.begin(), names_.Stored(Matrix::kUp)),
                      names.Base(*layers.begin(), names.Stored(Matrix::kUp)));
        }
        names_ = names;
        layers_ = std::move(layers);
      }
    }
    if (!layers_.empty()) return {};
    SLUICE_TRY(CheckPacked());
    return Fail(ErrorCode::kNotFound,
                "{}: no feed-forward tensors of architecture {} ({}); looked for {}",
                source_.path(), config_.architecture->name, config_.path, looked_for);
  }

  // Whether what is missing is there in a packed form: NAME.qweight for NAME.weight.
  Status CheckPacked() const {
    for (const Naming& naming : config_.architecture->namings) {
      for (const std::string_view prefix : naming.prefixes) {
        const Names names{&naming, prefix};
        for (const SourceTensor& tensor : source_.tensors()) {
          const std::optional<ParsedName> parsed = ParseName(names, tensor.name);
          if (!parsed) continue;
          for (const Matrix m : kMatrices) {
            if (names.Stored(m).empty() || !parsed->rest.starts_with(names.Stored(m))) continue;
            const std::string_view suffix = parsed->rest.substr(names.Stored(m).size());
            if (suffix.starts_with('.') && suffix != kWeight && suffix != kBias) {
              return Fail(ErrorCode::kUnsupported,
                          "{}: tensor {} ({}) is part of a packed format (GPTQ, AWQ or the like), "
                          "which is not supported; a checkpoint in F32, F16 or BF16 is needed",
                          tensor.file->path(), Quote(tensor.name), tensor.type);
            }
          }
        }
      }
    }
    return {};
  }

  // ---- One block ----

  Expected<const SourceTensor*> Need(const std::string& name) const {
    if (source_.Find(name) == nullptr) SLUICE_TRY(CheckPacked());
    return source_.FindReadable(name);
  }

  struct Widths {
    uint64_t d_model = 0;
    uint64_t d_ff = 0;
    std::string why;  // where they come from
  };

  // What the configuration says; where it is silent, what up's shape says.
  Expected<Widths> FindWidths(uint64_t layer, const SourceTensor& up) const {
    Widths widths;
    const bool in_out = names_.naming->orientation == Orientation::kInOut;
    const bool fused = !names_.naming->fused.empty();
    if (up.shape.size() != 2 || up.shape[0] == 0 || up.shape[1] == 0 ||
        (fused && up.shape[0] % 2 != 0)) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} is {}, which is not a matrix of weights{}",
                  up.file->path(), Quote(up.name), ShapeText(up.shape),
                  fused ? " for gate and up" : "");
    }
    widths.d_model = in_out ? up.shape[0] : up.shape[1];
    widths.d_ff = (in_out ? up.shape[1] : up.shape[0]) / (fused ? 2 : 1);
    if (config_.d_model) {
      widths.d_model = config_.d_model->value;
      widths.why = std::format("{}: {} {}", config_.path, config_.d_model->key, widths.d_model);
    } else if (d_model_) {
      widths.d_model = *d_model_;
      widths.why = std::format("d_model {} as in the layers before", widths.d_model);
    } else {
      widths.why = std::format("d_model {} by tensor {}", widths.d_model, up.name);
    }
    if (const auto d_ff = config_.DFf(layer)) {
      widths.d_ff = *d_ff;
      widths.why += std::format(", {} {}", config_.d_ff_key, widths.d_ff);
    } else if (config_.d_ff.empty()) {
      widths.why += std::format(", d_ff {} by tensor {}", widths.d_ff, up.name);
    } else {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} is of layer {}, but {} has {} values",
                  up.file->path(), Quote(up.name), layer, config_.d_ff_key, config_.d_ff.size());
    }
    return widths;
  }

  Status CheckShape(const SourceTensor& tensor, const std::vector<uint64_t>& expected,
                    const Widths& widths) const {
    if (tensor.shape == expected) return {};
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} is {}, expected {} ({})", tensor.file->path(),
                Quote(tensor.name), ShapeText(tensor.shape), ShapeText(expected), widths.why);
  }

  Expected<const SourceTensor*> FindBias(const std::string& name, uint64_t rows,
                                         const Widths& widths) const {
    const bool present = source_.Find(name) != nullptr;
    if (config_.biases == Biases::kNever && present) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: tensor {} is there, but by {} the feed-forward blocks have no biases",
                  source_.path(), Quote(name), config_.path);
    }
    if (!present && config_.biases != Biases::kAlways) return nullptr;
    SLUICE_ASSIGN(const SourceTensor* bias, Need(name));
    SLUICE_TRY(CheckShape(*bias, {rows}, widths));
    return bias;
  }

  Status PlaceMatrix(uint64_t layer, Matrix m, const Widths& widths, Block& block) const {
    const bool down = m == Matrix::kDown;
    const bool fused = !names_.naming->fused.empty() && !down;
    const uint64_t rows = down ? widths.d_model : widths.d_ff;
    const uint64_t cols = down ? widths.d_ff : widths.d_model;
    const std::string stored = names_.Base(layer, names_.Stored(m));
    SLUICE_ASSIGN(const SourceTensor* weight, Need(stored + std::string(kWeight)));
    std::vector<uint64_t> shape = {fused ? 2 * rows : rows, cols};
    if (names_.naming->orientation == Orientation::kInOut) std::swap(shape[0], shape[1]);
    SLUICE_TRY(CheckShape(*weight, shape, widths));
    if (rows > std::numeric_limits<ptrdiff_t>::max() / sizeof(float) / cols) {
      return Fail(ErrorCode::kUnsupported, "{}: tensor {} is {}, too large for this machine",
                  weight->file->path(), Quote(weight->name), ShapeText(weight->shape));
    }
    const std::string bias_name = stored + std::string(kBias);
    SLUICE_ASSIGN(const SourceTensor* bias, FindBias(bias_name, rows, widths));
    block.places[m] = {weight, fused && m == Matrix::kUp ? static_cast<size_t>(rows) : 0,
                       names_.naming->orientation, bias};
    block.layer.matrices[m] =
        SourceMatrix{.name = names_.Base(layer, names_.naming->matrices[m]) + std::string(kWeight),
                     .type = weight->type,
                     .bias_name = bias != nullptr ? bias_name : "",
                     .rows = static_cast<size_t>(rows),
                     .cols = static_cast<size_t>(cols),
                     .bytes = weight->bytes.size() / (fused ? 2 : 1)};
    return {};
  }

  Expected<Block> FindBlock(uint64_t layer) const {
    SLUICE_ASSIGN(const SourceTensor* up,
                  Need(names_.Base(layer, names_.Stored(Matrix::kUp)) + std::string(kWeight)));
    SLUICE_ASSIGN(const Widths widths, FindWidths(layer, *up));
    Block block;
    block.layer = {.layer = static_cast<size_t>(layer),
                   .d_model = static_cast<size_t>(widths.d_model),
                   .d_ff = static_cast<size_t>(widths.d_ff),
                   .activation = config_.activation,
                   .gated = names_.gated(),
                   .matrices = {}};
    for (const Matrix m : kMatrices) {
      if (m == Matrix::kGate && !names_.gated()) continue;
      SLUICE_TRY(PlaceMatrix(layer, m, widths, block));
    }
    return block;
  }

  // ---- All of them ----

  // The layers found against the number that the configuration says.
  Status CheckLayers(std::vector<std::string>& warnings) const {
    if (!config_.layers) return {};
    const auto& [count, key] = *config_.layers;
    const uint64_t last = *layers_.rbegin();
    if (last >= count) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} is of layer {}, but {} is {} ({})",
                  source_.path(), Quote(names_.Base(last, names_.Stored(Matrix::kUp))), last, key,
                  count, config_.path);
    }
    // Layers that have no block on purpose are counted as found.
    uint64_t found = layers_.size();
    for (size_t i = 0; i < config_.d_ff.size() && config_.d_ff.size() > 1; ++i) {
      if (config_.d_ff[i] == 0 && i < count && !layers_.contains(i)) ++found;
    }
    if (found != count) {
      warnings.push_back(
          std::format("{}: {} is {} ({}), but only {} of them came with feed-forward tensors",
                      source_.path(), key, count, config_.path, found));
    }
    return {};
  }

  const TensorSource& source_;
  const ModelConfig& config_;
  Names names_;
  std::set<uint64_t> layers_;
  std::optional<uint64_t> d_model_;  // of the blocks found so far
};

}  // namespace

Expected<Blocks> FindBlocks(const TensorSource& source, const ModelConfig& config) {
  return BlockFinder(source, config).Run();
}

}  // namespace sluice
