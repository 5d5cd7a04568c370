#include "quant/decoder/decoder.h"

#include <Eigen/Core>
#include <algorithm>
#include <format>
#include <utility>

#include "quant/checkpoint/tensor_source.h"
#include "quant/decoder/decoder_layer.h"
#include "quant/decoder/decoder_tensors.h"
#include "quant/decoder/norm.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// Tokens of one slice of the output matrix: their logits for some dozen rows of the stream fit the
// second-level cache.
constexpr size_t kSliceTokens = 2048;

}  // namespace

class Decoder::Impl {
 public:
  explicit Impl(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}

  Status Prepare() {
    SLUICE_ASSIGN(config_, ReadDecoderConfig(checkpoint_));
    SLUICE_ASSIGN(tensors_, FindDecoderTensors(checkpoint_, config_));
    SLUICE_ASSIGN(final_norm_, LoadNorm(*tensors_.final_norm, config_));
    frequencies_ = RopeFrequencies(config_.rope, config_.head_dim);
    local_frequencies_ = RopeFrequencies(config_.local_rope, config_.head_dim);
    if (tensors_.rope_divisors == nullptr) return {};
    std::vector<float> divisors;
    SLUICE_TRY(ReadTensor(*tensors_.rope_divisors, divisors));
    for (size_t i = 0; i < divisors.size(); ++i) frequencies_[i] /= divisors[i];
    return {};
  }

  const Checkpoint& checkpoint() const { return checkpoint_; }
  const DecoderConfig& config() const { return config_; }
  const DecoderTensors& tensors() const { return tensors_; }
  const RmsNorm& final_norm() const { return final_norm_; }
  std::span<const float> Frequencies(size_t layer) const {
    return config_.layers[layer].local_rope ? local_frequencies_ : frequencies_;
  }

 private:
  Checkpoint checkpoint_;
  DecoderConfig config_;
  DecoderTensors tensors_;
  RmsNorm final_norm_;
  std::vector<float> frequencies_, local_frequencies_;
};

Expected<Decoder> Decoder::Open(const std::string& path, const std::optional<std::string>& config) {
  SLUICE_ASSIGN(Checkpoint checkpoint, Checkpoint::Open(path, config));
  auto impl = std::make_unique<Impl>(std::move(checkpoint));
  SLUICE_TRY(impl->Prepare());
  return Decoder(std::move(impl));
}

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

const Checkpoint& Decoder::checkpoint() const { return impl_->checkpoint(); }
const DecoderConfig& Decoder::config() const { return impl_->config(); }
size_t Decoder::layers() const { return config().layers.size(); }
size_t Decoder::d_model() const { return config().d_model; }
size_t Decoder::vocabulary() const {
  return static_cast<size_t>(impl_->tensors().embedding->shape[0]);
}

Status Decoder::Embed(std::span<const int32_t> ids, MatrixView<float> stream) const {
  const auto scale = static_cast<float>(config().embedding_scale);
  for (size_t t = 0; t < ids.size(); ++t) {
    SLUICE_TRY(ReadRows(*impl_->tensors().embedding, static_cast<size_t>(ids[t]), 1,
                        [&](size_t, std::span<const float> values) {
                          std::ranges::transform(values, stream.row(t).begin(),
                                                 [&](float v) { return v * scale; });
                        }));
  }
  return {};
}

Expected<DecoderLayer> Decoder::Layer(size_t layer) const {
  SLUICE_ASSIGN(auto impl, DecoderLayer::Impl::Load(impl_->tensors().layers[layer], config(), layer,
                                                    impl_->Frequencies(layer)));
  return DecoderLayer(std::move(impl));
}

void Decoder::FinalNorm(MatrixView<const float> stream, MatrixView<float> x,
                        const ThreadPool* pool) const {
  impl_->final_norm().Apply(stream, x, pool);
}

Status Decoder::ForVocabulary(const VocabularySlice& use) const {
  const SourceTensor& output = *impl_->tensors().output;
  std::vector<float> slice;
  for (size_t first = 0; first < vocabulary(); first += kSliceTokens) {
    const size_t count = std::min(kSliceTokens, vocabulary() - first);
    slice.clear();
    SLUICE_TRY(ReadRows(output, first, count, [&](size_t, std::span<const float> values) {
      slice.insert(slice.end(), values.begin(), values.end());
    }));
    use(first, {slice.data(), count, d_model()});
  }
  return {};
}

size_t Decoder::vocabulary_slices() const {
  return (vocabulary() + kSliceTokens - 1) / kSliceTokens;
}

void Decoder::CapLogits(std::span<float> logits) const {
  const auto cap = static_cast<float>(config().logit_cap);
  if (cap == 0) return;
  Eigen::Map<Eigen::ArrayXf> values(logits.data(), static_cast<Eigen::Index>(logits.size()));
  values = (values / cap).tanh() * cap;
}

}  // namespace sluice
