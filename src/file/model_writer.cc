#include "src/file/model_writer.h"

#include <cstddef>
#include <format>
#include <span>
#include <utility>

#include "src/base/status.h"
#include "src/file/checksum.h"
#include "src/file/model_description.h"
#include "src/file/model_planes.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// A matrix to come.
struct Slot {
  size_t index = 0;  // of its layer in the description
  size_t layer = 0;
  Matrix matrix = Matrix::kGate;
  PackedLayout layout;
  bool has_bias = false;

  std::string name() const { return std::format("layer {}, {}", layer, Name(matrix)); }
};

Expected<std::vector<Slot>> Slots(const ModelDescription& description) {
  std::vector<Slot> slots;
  for (size_t i = 0; i < description.layers.size(); ++i) {
    const LayerInfo& layer = description.layers[i];
    SLUICE_ASSIGN(const BlockView block, DescribeBlock(layer));
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      slots.push_back(
          {i, layer.layer, m, block.matrices[m].layout, !layer.matrices[m]->bias_name.empty()});
    }
  }
  return slots;
}

std::string LayoutText(const PackedLayout& layout, bool has_bias) {
  return std::format("{} [{}, {}] {} bias", Name(layout.format), layout.rows, layout.cols,
                     has_bias ? "with" : "without");
}

}  // namespace

class ModelWriter::Impl {
 public:
  Impl(std::string path, ModelDescription description, std::vector<Slot> slots,
       SafetensorsWriter writer, size_t description_length)
      : path_(std::move(path)),
        description_(std::move(description)),
        description_length_(description_length),
        slots_(std::move(slots)),
        writer_(std::move(writer)) {}

  Status Add(size_t layer, Matrix matrix, const PackedMatrixView& packed,
             const std::string& method);
  Status Finish();

 private:
  std::string path_;
  ModelDescription description_;
  size_t description_length_;
  std::vector<Slot> slots_;  // in file order
  SafetensorsWriter writer_;
  size_t next_ = 0;  // in slots_
};

Status ModelWriter::Impl::Add(size_t layer, Matrix matrix, const PackedMatrixView& packed,
                              const std::string& method) {
  if (next_ == slots_.size()) {
    return Fail(ErrorCode::kInvalidArgument, "{}: layer {}, {} given, but all matrices are written",
                path_, layer, Name(matrix));
  }
  const Slot& slot = slots_[next_];
  if (slot.layer != layer || slot.matrix != matrix) {
    return Fail(ErrorCode::kInvalidArgument, "{}: layer {}, {} given, {} is next", path_, layer,
                Name(matrix), slot.name());
  }
  const bool has_bias = packed.bias != nullptr;
  if (packed.layout != slot.layout || has_bias != slot.has_bias) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {} is {}, described as {}", path_, slot.name(),
                LayoutText(packed.layout, has_bias), LayoutText(slot.layout, slot.has_bias));
  }
  for (const Plane plane : kPlanes) {
    if (const Status status = CheckPlane(packed, plane); !status) {
      return FailIn(std::format("{}: tensor \"{}\"", path_, PlaneName(layer, matrix, plane)),
                    status.error());
    }
  }
  for (const Plane plane : kPlanes) {
    const std::span<const std::byte> bytes = PlaneBytes(packed, plane);
    if (bytes.empty()) continue;
    SLUICE_TRY(writer_.Add(bytes));
    description_.checksums[slot.index][matrix][plane] = Checksum(bytes);
  }
  if (!method.empty()) description_.layers[slot.index].matrices[matrix]->method = method;
  ++next_;
  return {};
}

Status ModelWriter::Impl::Finish() {
  if (next_ < slots_.size()) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {} is missing", path_, slots_[next_].name());
  }
  SLUICE_TRY(writer_.ReplaceMetadata(FormatModelMetadata(description_, description_length_)));
  return writer_.Finish();
}

ModelWriter::ModelWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelWriter::ModelWriter(ModelWriter&&) noexcept = default;
ModelWriter::~ModelWriter() = default;

Expected<ModelWriter> ModelWriter::Create(const std::string& path, const std::string& architecture,
                                          std::vector<LayerInfo> layers) {
  ModelDescription description{architecture, std::move(layers), {}};
  description.checksums.resize(description.layers.size());
  if (const Status status = CheckModelDescription(description); !status) {
    return FailIn(path, status.error());
  }
  // What cannot be read is not written.
  const Metadata metadata = FormatModelMetadata(description);
  if (const auto parsed = ParseModelMetadata(metadata); !parsed) {
    return FailIn(path, parsed.error());
  }
  SLUICE_ASSIGN(std::vector<Slot> slots, Slots(description));
  std::vector<SafetensorsTensor> tensors;
  for (const Slot& slot : slots) {
    for (const Plane plane : kPlanes) {
      if (HasPlane(slot.layout.format, slot.has_bias, plane)) {
        tensors.push_back(PlaneTensor(slot.layer, slot.matrix, plane, slot.layout));
      }
    }
  }
  SLUICE_ASSIGN(SafetensorsWriter writer,
                SafetensorsWriter::Create(path, std::move(tensors), metadata));
  return ModelWriter(std::make_unique<Impl>(path, std::move(description), std::move(slots),
                                            std::move(writer), DescriptionLength(metadata)));
}

Status ModelWriter::Add(size_t layer, Matrix matrix, const PackedMatrixView& packed,
                        const std::string& method) {
  return impl_->Add(layer, matrix, packed, method);
}

Status ModelWriter::Finish() { return impl_->Finish(); }

}  // namespace sluice
