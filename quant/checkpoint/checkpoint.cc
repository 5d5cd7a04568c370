#include "quant/checkpoint/checkpoint.h"

#include <algorithm>
#include <span>
#include <utility>

#include "quant/checkpoint/blocks.h"
#include "quant/checkpoint/config.h"
#include "quant/checkpoint/locate.h"
#include "quant/checkpoint/tensor_source.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// Rows of the file are columns of the matrix. They arrive by the piece; within one, the inner loop
// writes consecutive values of a row of the matrix.
void ScatterColumns(size_t first_col, std::span<const float> values, LinearWeights& out) {
  const size_t count = values.size() / out.rows;
  for (size_t r = 0; r < out.rows; ++r) {
    float* row = out.weights.data() + r * out.cols + first_col;
    for (size_t c = 0; c < count; ++c) row[c] = values[c * out.rows + r];
  }
}

Status ReadWeights(const MatrixPlace& place, LinearWeights& out) {
  out.weights.resize(out.rows * out.cols);
  if (place.orientation == Orientation::kInOut) {
    return ReadRows(*place.weight, 0, out.cols, [&](size_t row, std::span<const float> values) {
      ScatterColumns(row, values, out);
    });
  }
  return ReadRows(
      *place.weight, place.first_row, out.rows, [&](size_t row, std::span<const float> values) {
        std::ranges::copy(values, out.weights.begin() +
                                      static_cast<ptrdiff_t>((row - place.first_row) * out.cols));
      });
}

}  // namespace

class Checkpoint::Impl {
 public:
  Impl(std::string path, TensorSource source, ModelConfig config)
      : path_(std::move(path)),
        architecture_(config.architecture->name),
        source_(std::move(source)),
        config_(std::move(config)) {}

  Status Find() {
    SLUICE_ASSIGN(Blocks found, FindBlocks(source_, config_));
    warnings_ = std::move(found.warnings);
    for (Block& block : found.blocks) {
      layers_.push_back(std::move(block.layer));
      places_.push_back(block.places);
    }
    return {};
  }

  const std::string& path() const { return path_; }
  const std::string& architecture() const { return architecture_; }
  const ModelConfig& config() const { return config_; }
  const TensorSource& source() const { return source_; }
  const std::vector<SourceLayer>& layers() const { return layers_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  // The position of a layer in layers().
  Expected<size_t> IndexOf(size_t layer) const {
    const auto found = std::ranges::find(layers_, layer, &SourceLayer::layer);
    if (found != layers_.end()) return static_cast<size_t>(found - layers_.begin());
    return Fail(ErrorCode::kNotFound, "{}: there is no layer {}; there are {}, from {} to {}",
                path_, layer, layers_.size(), layers_.front().layer, layers_.back().layer);
  }

  Expected<LinearWeights> Load(size_t index, Matrix m) const {
    const std::optional<SourceMatrix>& matrix = layers_[index].matrices[m];
    if (!matrix) {
      return Fail(ErrorCode::kInvalidArgument, "{}: layer {} has no {}", path_,
                  layers_[index].layer, Name(m));
    }
    const MatrixPlace& place = places_[index][m];
    LinearWeights out;
    out.rows = matrix->rows;
    out.cols = matrix->cols;
    SLUICE_TRY(ReadWeights(place, out));
    if (place.bias != nullptr) {
      SLUICE_TRY(ReadRows(*place.bias, 0, 1, [&](size_t, std::span<const float> values) {
        out.bias.assign(values.begin(), values.end());
      }));
    }
    return out;
  }

 private:
  std::string path_;
  std::string architecture_;
  TensorSource source_;
  ModelConfig config_;
  std::vector<SourceLayer> layers_;
  std::vector<PerMatrix<MatrixPlace>> places_;  // like layers_; into source_
  std::vector<std::string> warnings_;
};

Expected<Checkpoint> Checkpoint::Open(const std::string& path,
                                      const std::optional<std::string>& config) {
  SLUICE_ASSIGN(const CheckpointFiles files, LocateCheckpoint(path, config));
  SLUICE_ASSIGN(TensorSource source, TensorSource::Open(files));
  SLUICE_ASSIGN(ModelConfig model, source.gguf() != nullptr
                                       ? ReadGgufConfig(source.path(), *source.gguf())
                                       : ReadConfig(files.config));
  auto impl = std::make_unique<Impl>(path, std::move(source), std::move(model));
  SLUICE_TRY(impl->Find());
  return Checkpoint(std::move(impl));
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

const std::string& Checkpoint::path() const { return impl_->path(); }
const std::string& Checkpoint::architecture() const { return impl_->architecture(); }
const ModelConfig& Checkpoint::config() const { return impl_->config(); }
const TensorSource& Checkpoint::source() const { return impl_->source(); }
const std::vector<SourceLayer>& Checkpoint::layers() const { return impl_->layers(); }
const std::vector<std::string>& Checkpoint::warnings() const { return impl_->warnings(); }

Expected<LinearWeights> Checkpoint::Load(size_t layer, Matrix matrix) const {
  SLUICE_ASSIGN(const size_t index, impl_->IndexOf(layer));
  return impl_->Load(index, matrix);
}

Expected<FfnWeights> Checkpoint::Load(size_t layer) const {
  SLUICE_ASSIGN(const size_t index, impl_->IndexOf(layer));
  const SourceLayer& source = impl_->layers()[index];
  FfnWeights weights{
      .layer = layer, .activation = source.activation, .gated = source.gated, .matrices = {}};
  for (const Matrix m : kMatrices) {
    if (!source.matrices[m]) continue;
    SLUICE_ASSIGN(weights.matrices[m], impl_->Load(index, m));
  }
  return weights;
}

}  // namespace sluice
