// Names of what a feed-forward block is made of: its matrices, their number formats, how the
// activations that meet them are quantized, and the non-linearity.
#ifndef SLUICE_FORMAT_H_
#define SLUICE_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice {

// The matrices of a block: y = (act(x·gate) ⊙ (x·up))·down. A block without a gate computes
// y = act(x·up)·down, so its up is the literature's W1 and its down is W2.
enum class Matrix : uint8_t { kGate, kUp, kDown };
inline constexpr std::array<Matrix, 3> kMatrices = {Matrix::kGate, Matrix::kUp, Matrix::kDown};

// "gate", "up" or "down".
std::string_view Name(Matrix matrix);
Expected<Matrix> ParseMatrix(std::string_view name);

// One T for each matrix of a block.
template <class T>
struct PerMatrix {
  std::array<T, 3> items{};
  constexpr T& operator[](Matrix m) { return items[static_cast<size_t>(m)]; }
  constexpr const T& operator[](Matrix m) const { return items[static_cast<size_t>(m)]; }
  friend bool operator==(const PerMatrix&, const PerMatrix&) = default;
};

enum class WeightType : uint8_t { kF32, kBf16, kInt8, kInt4 };

// How the weights of one matrix are stored. The names follow XNNPACK's:
//   f32, bf16       float, no scale
//   qc8w, qc4w      int8 in [-127, 127] / int4 in [-8, 7], one f32 scale per output channel
//   qb8w:32         int8 in blocks of 32 along K, one bf16 scale per block
//   qb4w:32|64|128  int4 in blocks along K, one bf16 scale per block
// Integers are symmetric: weight = integer · scale.
struct WeightFormat {
  WeightType type = WeightType::kF32;
  uint32_t block = 0;  // values along K that share a scale; 0: the whole row, or no scale

  constexpr bool quantized() const {
    return type == WeightType::kInt8 || type == WeightType::kInt4;
  }
  constexpr bool blocked() const { return block != 0; }
  friend constexpr bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// Every format there is, best precision first.
inline constexpr std::array<WeightFormat, 8> kWeightFormats = {{
    {WeightType::kF32, 0},
    {WeightType::kBf16, 0},
    {WeightType::kInt8, 32},
    {WeightType::kInt8, 0},
    {WeightType::kInt4, 32},
    {WeightType::kInt4, 64},
    {WeightType::kInt4, 128},
    {WeightType::kInt4, 0},
}};

// The name used on command lines and in files, e.g. "qb4w:32".
std::string Name(WeightFormat format);
// Accepts exactly the names above; the error lists them.
Expected<WeightFormat> ParseWeightFormat(std::string_view name);

// How the vector that a matrix multiplies is represented:
//   kFloat  f32, unquantized; what f32 and bf16 weights take, whatever the others do
//   kRow    int8, symmetric, one f32 scale per token
//   kBlock  int8, symmetric, one f32 scale per 32 values
enum class ActivationFormat : uint8_t { kFloat, kRow, kBlock };
inline constexpr size_t kActivationBlock = 32;

std::string_view Name(ActivationFormat format);  // "f32", "row", "block"
Expected<ActivationFormat> ParseActivationFormat(std::string_view name);

// The scalar non-linearity. Formulas: SPEC of each in src/kernels/activation.h.
enum class Activation : uint8_t { kRelu, kRelu2, kGelu, kGeluTanh, kSilu, kSigmoid, kIdentity };
inline constexpr std::array<Activation, 7> kActivations = {
    Activation::kRelu, Activation::kRelu2,   Activation::kGelu,    Activation::kGeluTanh,
    Activation::kSilu, Activation::kSigmoid, Activation::kIdentity};

std::string_view Name(Activation activation);  // "relu", "relu2", "gelu", "gelu_tanh", "silu", …
// Accepts the names above and those of checkpoints' configurations: swish, gelu_new,
// gelu_pytorch_tanh, linear.
Expected<Activation> ParseActivation(std::string_view name);

}  // namespace sluice

#endif  // SLUICE_FORMAT_H_
