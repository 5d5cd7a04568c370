#include "src/file/model_writer.h"

#include <cstddef>
#include <format>
#include <optional>
#include <span>
#include <utility>

#include "src/base/status.h"
#include "src/file/checksum.h"
#include "src/file/model_description.h"
#include "src/file/model_planes.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// What is to come: a matrix, or the factors of a rescaled layer.
struct Slot {
  size_t index = 0;  // of its layer in the description
  size_t layer = 0;
  std::optional<Matrix> matrix = {};  // none: the factors
  PackedLayout layout = {};
  bool has_bias = false;
  size_t d_ff = 0;

  std::string name() const {
    return std::format("layer {}, {}", layer, matrix ? Name(*matrix) : "rescale");
  }
};

Expected<std::vector<Slot>> Slots(const ModelDescription& description) {
  std::vector<Slot> slots;
  for (size_t i = 0; i < description.layers.size(); ++i) {
    const LayerInfo& layer = description.layers[i];
    SLUICE_ASSIGN(const BlockView block, DescribeBlock(layer));
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      slots.push_back({.index = i,
                       .layer = layer.layer,
                       .matrix = m,
                       .layout = block.matrices[m].layout,
                       .has_bias = !layer.matrices[m]->bias_name.empty()});
    }
    if (layer.rescaled) slots.push_back({.index = i, .layer = layer.layer, .d_ff = layer.d_ff});
  }
  return slots;
}

// The tensors of a slot, in file order.
void AddTensors(const Slot& slot, std::vector<SafetensorsTensor>& tensors) {
  if (!slot.matrix) {
    tensors.push_back(RescaleTensor(slot.layer, slot.d_ff));
    return;
  }
  for (const Plane plane : kPlanes) {
    if (HasPlane(slot.layout.format, slot.has_bias, plane)) {
      tensors.push_back(PlaneTensor(slot.layer, *slot.matrix, plane, slot.layout));
    }
  }
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
  Status AddRescale(size_t layer, std::span<const float> factors);
  Status Finish();

 private:
  Expected<const Slot*> Next(size_t layer, std::optional<Matrix> matrix) const;

  std::string path_;
  ModelDescription description_;
  size_t description_length_;
  std::vector<Slot> slots_;  // in file order
  SafetensorsWriter writer_;
  size_t next_ = 0;  // in slots_
};

// The next slot, if that is what is given.
Expected<const Slot*> ModelWriter::Impl::Next(size_t layer, std::optional<Matrix> matrix) const {
  const std::string given = Slot{.layer = layer, .matrix = matrix}.name();
  if (next_ == slots_.size()) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {} given, but all matrices are written", path_,
                given);
  }
  const Slot& slot = slots_[next_];
  if (slot.layer == layer && slot.matrix == matrix) return &slot;
  return Fail(ErrorCode::kInvalidArgument, "{}: {} given, {} is next", path_, given, slot.name());
}

Status ModelWriter::Impl::Add(size_t layer, Matrix matrix, const PackedMatrixView& packed,
                              const std::string& method) {
  SLUICE_ASSIGN(const Slot* next, Next(layer, matrix));
  const Slot& slot = *next;
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

Status ModelWriter::Impl::AddRescale(size_t layer, std::span<const float> factors) {
  SLUICE_ASSIGN(const Slot* slot, Next(layer, std::nullopt));
  const std::string where = std::format("{}: tensor \"{}\"", path_, RescaleName(layer));
  if (factors.size() != slot->d_ff) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {} factors given, the layer has {} neurons",
                where, factors.size(), slot->d_ff);
  }
  const auto stored = EncodeRescale(factors);
  if (!stored) return FailIn(where, stored.error());
  const auto bytes = std::as_bytes(std::span(*stored));
  SLUICE_TRY(writer_.Add(bytes));
  description_.rescale_checksums[slot->index] = Checksum(bytes);
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
  ModelDescription description{architecture, std::move(layers), {}, {}};
  description.checksums.resize(description.layers.size());
  description.rescale_checksums.resize(description.layers.size());
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
  for (const Slot& slot : slots) AddTensors(slot, tensors);
  SLUICE_ASSIGN(SafetensorsWriter writer,
                SafetensorsWriter::Create(path, std::move(tensors), metadata));
  return ModelWriter(std::make_unique<Impl>(path, std::move(description), std::move(slots),
                                            std::move(writer), DescriptionLength(metadata)));
}

Status ModelWriter::Add(size_t layer, Matrix matrix, const PackedMatrixView& packed,
                        const std::string& method) {
  return impl_->Add(layer, matrix, packed, method);
}

Status ModelWriter::AddRescale(size_t layer, std::span<const float> factors) {
  return impl_->AddRescale(layer, factors);
}

Status ModelWriter::Finish() { return impl_->Finish(); }

}  // namespace sluice
