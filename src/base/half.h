// The 16-bit floating-point formats of checkpoints and scales, converted in integer arithmetic so
// that every CPU gives the same bits.
#ifndef SLUICE_SRC_BASE_HALF_H_
#define SLUICE_SRC_BASE_HALF_H_

#include <bit>
#include <cstdint>

namespace sluice {

// The upper half of an f32: 8 exponent bits, 7 fraction bits.
struct Bf16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(const Bf16&, const Bf16&) = default;
};

// IEEE 754 binary16: 5 exponent bits, 10 fraction bits.
struct F16 {
  uint16_t bits = 0;
};

constexpr float ToFloat(Bf16 h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h.bits) << 16);
}

// Rounds to nearest, ties to even. Adding 0x7FFF alone would carry a NaN's payload into the sign or
// out to infinity, so NaN is handled apart: it keeps its sign and top payload bits and is made
// quiet.
constexpr Bf16 ToBf16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

constexpr float ToFloat(F16 h) {
  const uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16;
  const uint32_t exponent = (h.bits >> 10) & 0x1Fu;
  const uint32_t fraction = h.bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  if (exponent == 0) {
    // Subnormal: fraction · 2^-24, exact in f32.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_HALF_H_
