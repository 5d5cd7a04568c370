#include "sluice/model.h"

#include <algorithm>
#include <cstdint>
#include <format>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "src/base/aligned_buffer.h"
#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/ffn/ffn_impl.h"
#include "src/file/checksum.h"
#include "src/file/model_impl.h"

namespace sluice {
namespace {

// The tensor's bytes, if it is there and is what the layout makes it.
Expected<const std::byte*> MapPlane(const SafetensorsFile& file, const SafetensorsTensor& expected,
                                    std::string_view owner = "matrix") {
  const SafetensorsEntry* entry = file.Find(expected.name);
  if (entry == nullptr) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} is missing", file.path(), Quote(expected.name));
  }
  if (entry->dtype != expected.dtype || entry->shape != expected.shape) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} is {} {}, its {} takes {} {}", file.path(),
                Quote(expected.name), Quote(entry->dtype), ShapeText(entry->shape), owner,
                expected.dtype, ShapeText(expected.shape));
  }
  const size_t offset = static_cast<size_t>(entry->bytes.data() - file.file().bytes().data());
  if (offset % kAlignment != 0) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor {} is at byte {}, which {} does not divide",
                file.path(), Quote(expected.name), offset, kAlignment);
  }
  return entry->bytes.data();
}

Status CheckChecksum(const std::string& tensor, std::span<const std::byte> bytes,
                     uint64_t expected) {
  const uint64_t actual = Checksum(bytes);
  if (actual == expected) return {};
  return Fail(ErrorCode::kCorrupt, "{}: its checksum is {}, the description says {}", tensor,
              ChecksumText(actual), ChecksumText(expected));
}

}  // namespace

Expected<std::unique_ptr<Model::Impl>> Model::Impl::Open(const std::string& path) {
  std::unique_ptr<Impl> impl(new Impl);
  SLUICE_ASSIGN(impl->file_, SafetensorsFile::Open(path));
  Expected<ModelDescription> description = ParseModelMetadata(impl->file_.metadata());
  if (!description) return FailIn(path, description.error());
  impl->description_ = *std::move(description);
  SLUICE_TRY(impl->Map());
  return impl;
}

Status Model::Impl::Map() {
  std::set<std::string> names;
  for (LayerInfo& layer : description_.layers) {
    SLUICE_ASSIGN(BlockView block, DescribeBlock(layer));
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      const bool has_bias = !layer.matrices[m]->bias_name.empty();
      PackedMatrixView& view = block.matrices[m];
      SLUICE_TRY(MapMatrix(layer.layer, m, has_bias, view));
      layer.matrices[m]->bytes =
          PlaneBytes(view, Plane::kWeight).size() + PlaneBytes(view, Plane::kScale).size();
      for (const Plane plane : kPlanes) {
        if (HasPlane(view.layout.format, has_bias, plane)) {
          names.insert(PlaneName(layer.layer, m, plane));
        }
      }
    }
    if (layer.rescaled) {
      SLUICE_TRY(MapPlane(file_, RescaleTensor(layer.layer, layer.d_ff), "layer"));
      names.insert(RescaleName(layer.layer));
    }
    blocks_.push_back(block);
  }
  for (const SafetensorsEntry& entry : file_.entries()) {
    if (!names.contains(entry.name)) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} belongs to no layer", path(),
                  Quote(entry.name));
    }
  }
  return {};
}

Status Model::Impl::MapMatrix(size_t layer, Matrix m, bool has_bias, PackedMatrixView& view) const {
  PerPlane<const std::byte*> planes;
  for (const Plane plane : kPlanes) {
    if (!HasPlane(view.layout.format, has_bias, plane)) continue;
    SLUICE_ASSIGN(planes[plane], MapPlane(file_, PlaneTensor(layer, m, plane, view.layout)));
  }
  view.weights = planes[Plane::kWeight];
  view.scales = planes[Plane::kScale];
  view.bias = reinterpret_cast<const float*>(planes[Plane::kBias]);
  return {};
}

Expected<size_t> Model::Impl::IndexOf(size_t layer) const {
  const std::vector<LayerInfo>& layers = description_.layers;
  const auto found = std::ranges::lower_bound(layers, layer, {}, &LayerInfo::layer);
  if (found == layers.end() || found->layer != layer) {
    return Fail(ErrorCode::kNotFound, "{}: there is no layer {}; the file has {}, from {} to {}",
                path(), layer, layers.size(), layers.front().layer, layers.back().layer);
  }
  return static_cast<size_t>(found - layers.begin());
}

Expected<BlockView> Model::Impl::Block(size_t layer) const {
  SLUICE_ASSIGN(const size_t index, IndexOf(layer));
  return blocks_[index];
}

Expected<std::vector<float>> Model::Impl::Rescale(size_t layer) const {
  SLUICE_ASSIGN(const size_t index, IndexOf(layer));
  const LayerInfo& info = description_.layers[index];
  if (!info.rescaled) return std::vector<float>();
  const SafetensorsEntry* entry = file_.Find(RescaleName(layer));
  auto factors = DecodeRescale(entry->bytes, info.d_ff);
  if (factors) return factors;
  return FailIn(std::format("{}: tensor \"{}\"", path(), entry->name), factors.error());
}

void Model::Impl::Release(const PackedMatrixView& matrix) const {
  for (const Plane plane : kPlanes) file_.file().Release(PlaneBytes(matrix, plane));
}

void Model::Impl::WillNeed(const PackedMatrixView& matrix) const {
  for (const Plane plane : kPlanes) file_.file().WillNeed(PlaneBytes(matrix, plane));
}

Status Model::Impl::VerifyMatrix(size_t index, Matrix m) const {
  const PackedMatrixView& view = blocks_[index].matrices[m];
  for (const Plane plane : kPlanes) {
    const std::span<const std::byte> bytes = PlaneBytes(view, plane);
    if (bytes.empty()) continue;
    const std::string tensor = std::format("{}: tensor \"{}\"", path(),
                                           PlaneName(description_.layers[index].layer, m, plane));
    SLUICE_TRY(CheckChecksum(tensor, bytes, description_.checksums[index][m][plane]));
    if (const Status status = CheckPlane(view, plane); !status) {
      return FailIn(tensor, status.error());
    }
  }
  Release(view);
  return {};
}

Status Model::Impl::VerifyRescale(size_t index) const {
  const size_t layer = description_.layers[index].layer;
  const SafetensorsEntry* entry = file_.Find(RescaleName(layer));
  SLUICE_TRY(CheckChecksum(std::format("{}: tensor \"{}\"", path(), entry->name), entry->bytes,
                           description_.rescale_checksums[index]));
  SLUICE_TRY(Rescale(layer));
  return {};
}

Status Model::Impl::Verify() const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    for (const Matrix m : kMatrices) {
      if (description_.layers[i].matrices[m]) SLUICE_TRY(VerifyMatrix(i, m));
    }
    if (description_.layers[i].rescaled) SLUICE_TRY(VerifyRescale(i));
  }
  return {};
}

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Expected<Model> Model::Open(const std::string& path) {
  SLUICE_ASSIGN(std::unique_ptr<Impl> impl, Impl::Open(path));
  return Model(std::move(impl));
}

const std::string& Model::path() const { return impl_->path(); }
const std::string& Model::architecture() const { return impl_->description().architecture; }
const std::vector<LayerInfo>& Model::layers() const { return impl_->description().layers; }
uint64_t Model::file_bytes() const { return impl_->file().file().bytes().size(); }

Expected<Ffn> Model::Layer(size_t layer, const FfnOptions& options) const {
  SLUICE_ASSIGN(const BlockView block, impl_->Block(layer));
  auto ffn = CreateFfn(block, options);
  if (!ffn) return FailIn(std::format("{}: layer {}", path(), layer), ffn.error());
  for (const Matrix m : kMatrices) {
    if (m != Matrix::kGate || block.gated) impl_->WillNeed(block.matrices[m]);
  }
  return ffn;
}

Status Model::Verify() const { return impl_->Verify(); }

}  // namespace sluice
