#include "src/file/model_planes.h"

#include <format>

namespace sluice {

std::string_view Name(Plane plane) {
  switch (plane) {
    case Plane::kWeight:
      return "weight";
    case Plane::kScale:
      return "scale";
    case Plane::kBias:
      return "bias";
  }
  return "";
}

std::string PlaneName(size_t layer, Matrix matrix, Plane plane) {
  return std::format("layers.{}.{}.{}", layer, Name(matrix), Name(plane));
}

bool HasPlane(WeightFormat format, bool has_bias, Plane plane) {
  switch (plane) {
    case Plane::kWeight:
      return true;
    case Plane::kScale:
      return format.quantized();
    case Plane::kBias:
      return has_bias;
  }
  return false;
}

SafetensorsTensor PlaneTensor(size_t layer, Matrix matrix, Plane plane,
                              const PackedLayout& layout) {
  std::string name = PlaneName(layer, matrix, plane);
  switch (plane) {
    case Plane::kWeight:
      return {std::move(name), "U8", {layout.weight_bytes()}};
    case Plane::kScale:
      return {std::move(name),
              layout.format.blocked() ? "BF16" : "F32",
              {layout.scale_bytes() / layout.scale_bytes_each()}};
    case Plane::kBias:
      return {std::move(name), "F32", {layout.bias_bytes() / sizeof(float)}};
  }
  return {};
}

std::span<const std::byte> PlaneBytes(const PackedMatrixView& packed, Plane plane) {
  switch (plane) {
    case Plane::kWeight:
      return {packed.weights, packed.layout.weight_bytes()};
    case Plane::kScale:
      return {packed.scales, packed.scales == nullptr ? 0 : packed.layout.scale_bytes()};
    case Plane::kBias:
      return {reinterpret_cast<const std::byte*>(packed.bias),
              packed.bias == nullptr ? 0 : packed.layout.bias_bytes()};
  }
  return {};
}

Status CheckPlane(const PackedMatrixView& packed, Plane plane) {
  switch (plane) {
    case Plane::kWeight:
      return CheckWeights(packed);
    case Plane::kScale:
      return CheckScales(packed);
    case Plane::kBias:
      return CheckBias(packed);
  }
  return {};
}

}  // namespace sluice
