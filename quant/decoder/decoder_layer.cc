#include "quant/decoder/decoder_layer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "quant/linalg/matrix_product.h"
#include "src/base/status.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

// Tokens whose q, k and v are in memory together, unless one window is longer.
constexpr size_t kGroupTokens = 2048;
constexpr size_t kTaskRows = 32;

double Length(std::span<const float> v) {
  double squares = 0;
  for (const float x : v) squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares);
}

// Where GGUF's Llama keeps row `row` of q or k: there, pairs that rotate together are neighbours.
size_t Interleaved(size_t row, size_t head_dim) {
  const size_t half = head_dim / 2;
  const size_t in_head = row % head_dim;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

class QkvLoader {
 public:
  QkvLoader(const DecoderConfig& config, LinearWeights& qkv) : config_(config), qkv_(qkv) {
    qkv_.rows = (config.heads + 2 * config.kv_heads) * config.head_dim;
    qkv_.cols = config.d_model;
    qkv_.weights.resize(qkv_.rows * qkv_.cols);
  }

  Status Run(const LayerTensors& tensors) {
    SLUICE_TRY(Add(tensors.q, config_.interleaved_heads));
    SLUICE_TRY(Add(tensors.k, config_.interleaved_heads));
    return Add(tensors.v, false);
  }

 private:
  Status Add(const LinearTensors& tensors, bool interleaved) {
    SLUICE_TRY(AddRows(*tensors.weight, interleaved, qkv_.cols, qkv_.weights));
    if (tensors.bias != nullptr) {
      qkv_.bias.resize(qkv_.rows);  // zeros for those that have none
      SLUICE_TRY(AddRows(*tensors.bias, interleaved, 1, qkv_.bias));
    }
    first_ += static_cast<size_t>(tensors.weight->shape[0]);
    return {};
  }

  // Of a matrix, or of a vector as a matrix of one column.
  Status AddRows(const SourceTensor& tensor, bool interleaved, size_t cols,
                 std::vector<float>& out) const {
    const auto rows = static_cast<size_t>(tensor.shape[0]);
    std::vector<float> values;
    SLUICE_TRY(ReadTensor(tensor, values));
    for (size_t r = 0; r < rows; ++r) {
      const size_t from = interleaved ? Interleaved(r, config_.head_dim) : r;
      std::copy_n(values.begin() + static_cast<ptrdiff_t>(from * cols), cols,
                  out.begin() + static_cast<ptrdiff_t>((first_ + r) * cols));
    }
    return {};
  }

  const DecoderConfig& config_;
  LinearWeights& qkv_;
  size_t first_ = 0;
};

Expected<std::optional<RmsNorm>> LoadOptional(const SourceTensor* tensor,
                                              const DecoderConfig& config) {
  if (tensor == nullptr) return std::nullopt;
  SLUICE_ASSIGN(RmsNorm norm, LoadNorm(*tensor, config));
  return norm;
}

}  // namespace

Expected<RmsNorm> LoadNorm(const SourceTensor& tensor, const DecoderConfig& config) {
  RmsNorm norm{.weights = {}, .eps = config.norm_eps};
  SLUICE_TRY(ReadTensor(tensor, norm.weights));
  for (float& w : norm.weights) w += config.norm_offset;
  return norm;
}

Expected<std::unique_ptr<DecoderLayer::Impl>> DecoderLayer::Impl::Load(
    const LayerTensors& tensors, const DecoderConfig& config, size_t layer,
    std::span<const float> frequencies) {
  auto impl = std::make_unique<Impl>();
  impl->shape_ = {.heads = config.heads,
                  .kv_heads = config.kv_heads,
                  .head_dim = config.head_dim,
                  .scale = config.attention_scale,
                  .cap = config.attention_cap,
                  .window = config.layers[layer].window};
  impl->frequencies_ = frequencies;
  SLUICE_TRY(QkvLoader(config, impl->qkv_).Run(tensors));
  impl->output_.rows = config.d_model;
  impl->output_.cols = config.heads * config.head_dim;
  SLUICE_TRY(ReadTensor(*tensors.output.weight, impl->output_.weights));
  if (tensors.output.bias != nullptr) {
    SLUICE_TRY(ReadTensor(*tensors.output.bias, impl->output_.bias));
  }
  SLUICE_ASSIGN(impl->attention_norm_, LoadNorm(*tensors.attention_norm, config));
  SLUICE_ASSIGN(impl->block_norm_, LoadNorm(*tensors.block_norm, config));
  SLUICE_ASSIGN(impl->q_norm_, LoadOptional(tensors.q_norm, config));
  SLUICE_ASSIGN(impl->k_norm_, LoadOptional(tensors.k_norm, config));
  SLUICE_ASSIGN(impl->post_attention_norm_, LoadOptional(tensors.post_attention_norm, config));
  SLUICE_ASSIGN(impl->post_block_norm_, LoadOptional(tensors.post_block_norm, config));
  return impl;
}

void DecoderLayer::Impl::AddAttention(std::span<const size_t> windows, MatrixView<float> stream,
                                      const ThreadPool* pool) const {
  if (windows.empty()) return;
  const RopeTable rope(frequencies_, std::ranges::max(windows));
  size_t row = 0;
  while (!windows.empty()) {
    size_t count = 1;
    size_t rows = windows[0];
    while (count < windows.size() && rows + windows[count] <= kGroupTokens) {
      rows += windows[count++];
    }
    AttendGroup(windows.first(count), stream.Rows(row, rows), rope, pool);
    windows = windows.subspan(count);
    row += rows;
  }
}

void DecoderLayer::Impl::AttendGroup(std::span<const size_t> windows, MatrixView<float> stream,
                                     const RopeTable& rope, const ThreadPool* pool) const {
  const size_t tokens = stream.rows;
  const size_t q_cols = shape_.heads * shape_.head_dim;
  const size_t kv_cols = shape_.kv_heads * shape_.head_dim;
  std::vector<float> normed(tokens * stream.cols);
  std::vector<float> projected(tokens * qkv_.rows);
  std::vector<float> attended(tokens * q_cols);
  const MatrixView<float> x(normed.data(), tokens, stream.cols);
  const MatrixView<float> qkv(projected.data(), tokens, qkv_.rows);
  const MatrixView<float> out(attended.data(), tokens, q_cols);
  const auto columns = [&](size_t first, size_t count) {
    return MatrixView<const float>(projected.data() + first, tokens, count, qkv_.rows);
  };
  attention_norm_.Apply(stream, x, pool);
  MultiplyTransposed(x, qkv_.view(), qkv_.bias, qkv, pool);
  PrepareHeads(windows, rope, qkv, pool);
  Attend(shape_, windows, columns(0, q_cols), columns(q_cols, kv_cols),
         columns(q_cols + kv_cols, kv_cols), out, pool);
  MultiplyTransposed(out, output_.view(), output_.bias, x, pool);
  AddToStream(post_attention_norm_ ? &*post_attention_norm_ : nullptr, x, stream, pool);
}

void DecoderLayer::Impl::PrepareHeads(std::span<const size_t> windows, const RopeTable& rope,
                                      MatrixView<float> qkv, const ThreadPool* pool) const {
  std::vector<size_t> positions(qkv.rows);
  for (size_t row = 0; const size_t length : windows) {
    std::iota(positions.begin() + static_cast<ptrdiff_t>(row),
              positions.begin() + static_cast<ptrdiff_t>(row + length), size_t{0});
    row += length;
  }
  ParallelFor(pool, qkv.rows, kTaskRows, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      for (size_t h = 0; h < shape_.heads + shape_.kv_heads; ++h) {
        const std::span<float> head = qkv.row(r).subspan(h * shape_.head_dim, shape_.head_dim);
        const std::optional<RmsNorm>& norm = h < shape_.heads ? q_norm_ : k_norm_;
        if (norm) norm->Apply(head, head);
        rope.Rotate(positions[r], head);
      }
    }
  });
}

DecoderLayer::DecoderLayer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DecoderLayer::DecoderLayer(DecoderLayer&&) noexcept = default;
DecoderLayer& DecoderLayer::operator=(DecoderLayer&&) noexcept = default;
DecoderLayer::~DecoderLayer() = default;

void DecoderLayer::AddAttention(std::span<const size_t> windows, MatrixView<float> stream,
                                const ThreadPool* pool) const {
  impl_->AddAttention(windows, stream, pool);
}

void DecoderLayer::BlockInput(MatrixView<const float> stream, MatrixView<float> x,
                              const ThreadPool* pool) const {
  impl_->block_norm().Apply(stream, x, pool);
}

void DecoderLayer::AddBlockOutput(MatrixView<float> y, MatrixView<float> stream,
                                  const ThreadPool* pool) const {
  AddToStream(impl_->post_block_norm(), y, stream, pool);
}

void DecoderLayer::MoveOutput(MatrixView<const float> to, MatrixView<const float> from, float part,
                              float most, MatrixView<float> y, const ThreadPool* pool) const {
  const RmsNorm* norm = impl_->post_block_norm();
  // What undoes the norm's weights; for small ones less than that, see the header.
  std::vector<float> inverse(y.cols, 1.0f);
  if (norm != nullptr) {
    float typical = 0;
    for (const float w : norm->weights) typical += w * w / static_cast<float>(y.cols);
    for (size_t c = 0; c < y.cols; ++c) {
      const float w = norm->weights[c];
      inverse[c] = typical == 0 ? 0 : w / std::max(w * w, typical);
    }
  }
  ParallelFor(pool, y.rows, kTaskRows, [&](size_t begin, size_t end) {
    std::vector<float> change(y.cols);
    for (size_t r = begin; r < end; ++r) {
      const auto row = y.row(r);
      const float scale = part / OutputGain(row);
      for (size_t c = 0; c < y.cols; ++c) {
        change[c] = scale * inverse[c] * (to.row(r)[c] - from.row(r)[c]);
      }
      const double allowed = most * Length(row);
      const double length = Length(change);
      const auto fraction = static_cast<float>(length > allowed ? allowed / length : 1);
      for (size_t c = 0; c < y.cols; ++c) row[c] += fraction * change[c];
    }
  });
}

bool DecoderLayer::norms_output() const { return impl_->post_block_norm() != nullptr; }

float DecoderLayer::OutputGain(std::span<const float> y) const {
  const RmsNorm* norm = impl_->post_block_norm();
  return norm == nullptr ? 1.0f : norm->Factor(y);
}

}  // namespace sluice
