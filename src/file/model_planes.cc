#include "src/file/model_planes.h"

#include <cmath>
#include <cstring>
#include <format>

#include "src/base/aligned_buffer.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// Factors in 64 bytes.
constexpr size_t kRescaleUnit = kAlignment / sizeof(Bf16);

Status CheckFactor(float factor, size_t neuron) {
  if (std::isfinite(factor) && factor > 0) return {};
  return Fail(ErrorCode::kCorrupt, "the factor of neuron {} is {}, expected a positive number",
              neuron, factor);
}

}  // namespace

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

std::string RescaleName(size_t layer) { return std::format("layers.{}.rescale", layer); }

SafetensorsTensor RescaleTensor(size_t layer, size_t d_ff) {
  return {RescaleName(layer), "BF16", {RoundUp(d_ff, kRescaleUnit)}};
}

Expected<std::vector<Bf16>> EncodeRescale(std::span<const float> factors) {
  std::vector<Bf16> stored(RoundUp(factors.size(), kRescaleUnit));
  for (size_t j = 0; j < factors.size(); ++j) {
    SLUICE_TRY(CheckFactor(factors[j], j));
    stored[j] = ToBf16(factors[j]);
    if (ToFloat(stored[j]) == factors[j]) continue;
    return Fail(ErrorCode::kInvalidArgument, "the factor of neuron {} is {}, no value of bf16", j,
                factors[j]);
  }
  return stored;
}

Expected<std::vector<float>> DecodeRescale(std::span<const std::byte> bytes, size_t d_ff) {
  std::vector<float> factors(d_ff);
  for (size_t j = 0; j < bytes.size() / sizeof(Bf16); ++j) {
    Bf16 stored;
    std::memcpy(&stored, bytes.data() + j * sizeof(Bf16), sizeof(Bf16));
    if (j < d_ff) {
      factors[j] = ToFloat(stored);
      SLUICE_TRY(CheckFactor(factors[j], j));
    } else if (stored.bits != 0) {
      return Fail(ErrorCode::kCorrupt, "value {} is padding, but not 0", j);
    }
  }
  return factors;
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
