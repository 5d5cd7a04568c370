// The tensors that a packed model file stores a matrix in. Writer and reader both ask here.
#ifndef SLUICE_SRC_FILE_MODEL_PLANES_H_
#define SLUICE_SRC_FILE_MODEL_PLANES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"
#include "sluice/format.h"
#include "src/base/half.h"
#include "src/file/safetensors.h"
#include "src/format/layout.h"
#include "src/format/pack.h"

namespace sluice {

enum class Plane : uint8_t { kWeight, kScale, kBias };
inline constexpr std::array<Plane, 3> kPlanes = {Plane::kWeight, Plane::kScale, Plane::kBias};

// "weight", "scale" or "bias".
std::string_view Name(Plane plane);

// One T for each plane of a matrix.
template <class T>
struct PerPlane {
  std::array<T, 3> items{};
  constexpr T& operator[](Plane p) { return items[static_cast<size_t>(p)]; }
  constexpr const T& operator[](Plane p) const { return items[static_cast<size_t>(p)]; }
  friend bool operator==(const PerPlane&, const PerPlane&) = default;
};

// "layers.3.gate.weight".
std::string PlaneName(size_t layer, Matrix matrix, Plane plane);

// Float formats have no scales, and a bias is optional.
bool HasPlane(WeightFormat format, bool has_bias, Plane plane);

// Name, dtype and shape in the file; one dimension, padding included.
SafetensorsTensor PlaneTensor(size_t layer, Matrix matrix, Plane plane, const PackedLayout& layout);

// A layer's rescaling factors: one for each of d_ff neurons, BF16, padded with +0 to 64 bytes.
std::string RescaleName(size_t layer);  // "layers.3.rescale"
SafetensorsTensor RescaleTensor(size_t layer, size_t d_ff);

// What the tensor holds. `factors` has at least one value. Errors: one that is not a positive
// number, or not one of bf16.
Expected<std::vector<Bf16>> EncodeRescale(std::span<const float> factors);
// The inverse, for bytes of any origin. Errors: a factor that is not a positive number; padding.
Expected<std::vector<float>> DecodeRescale(std::span<const std::byte> bytes, size_t d_ff);

// A plane's bytes in memory; empty if the matrix does not have it.
std::span<const std::byte> PlaneBytes(const PackedMatrixView& packed, Plane plane);

// CheckWeights, CheckScales or CheckBias.
Status CheckPlane(const PackedMatrixView& packed, Plane plane);

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_MODEL_PLANES_H_
