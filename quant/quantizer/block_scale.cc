#include "quant/quantizer/block_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "quant/quantizer/quantizer.h"
#include "src/base/half.h"
#include "src/format/quantized_matrix.h"

namespace sluice {
namespace {

// The nearest integer, ties to even, of |x| < 2^22: adding 1.5 · 2^23 leaves no fraction bits. A
// call of std::nearbyint costs more than the rest of the search.
float RoundSmall(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return (x + kMagic) - kMagic;
}

// The largest integer magnitude that a scale can be tried for: 127, or 8, as int4 has −8.
int MaxMultiple(WeightType type) { return -MinInteger(type); }

// The next value toward zero that `format` stores; scale > 0.
float StoredBelow(float scale, WeightFormat format) {
  if (!format.blocked()) return std::nextafter(scale, 0.0f);
  return ToFloat(Bf16{static_cast<uint16_t>(ToBf16(scale).bits - 1)});
}

float StoredAbove(float scale, WeightFormat format) {
  if (!format.blocked()) return std::nextafter(scale, HUGE_VALF);
  return ToFloat(Bf16{static_cast<uint16_t>(ToBf16(scale).bits + 1)});
}

// Whether integers times `scale` give every value back. |values| <= ~127 · scale.
bool IsExact(std::span<const float> values, float scale, WeightType type) {
  const auto lowest = static_cast<float>(MinInteger(type));
  const auto highest = static_cast<float>(MaxInteger(type));
  return std::ranges::all_of(values, [=](float v) {
    const float q = RoundSmall(v / scale);
    return q >= lowest && q <= highest && q * scale == v;
  });
}

// A scale s, as stored, with k · s = amax and every value an integer multiple of it.
std::optional<float> ExactScale(std::span<const float> values, float amax, int k,
                                WeightFormat format) {
  const auto multiple = static_cast<float>(k);
  const float nearest = StoredScale(amax / multiple, format);
  // k · s is rounded when s is f32, so s may be a neighbour of amax / k. (With both roundings at
  // most half a unit of their results, it lies less than 1.5 units off.)
  for (const float s : {nearest, StoredBelow(nearest, format), StoredAbove(nearest, format)}) {
    if (multiple * s == amax && IsExact(values, s, format.type)) return s;
  }
  return std::nullopt;
}

// Whether amax can be k · s for a bf16 s: 8 significant bits and those of k.
bool MayBeMultipleOfBf16(float amax, WeightType type) {
  const int product_bits = 8 + std::bit_width(static_cast<unsigned>(MaxMultiple(type)));
  const uint32_t beyond = (1u << (24 - product_bits)) - 1;
  return (std::bit_cast<uint32_t>(amax) & beyond) == 0;
}

// The smallest k <= limit that makes ratio · k an integer from 1 on, for 0 < ratio <= 1; 0 if there
// is none. If ratio is p / k in lowest terms, p / k is one of its continued fraction's convergents,
// of which the denominators grow fast: what is no such fraction is found out in a few steps.
// `ratio` may be off by three roundings of 2^-24, which grow to k · 2^-22 < 2^-15; any other k
// misses an integer by 1 / limit or more.
int SmallestMultiplier(float ratio, int limit) {
  constexpr float kTolerance = 0x1p-14f;
  int k = 1;
  int previous = 0;
  float rest = ratio;
  while (k <= limit) {
    const float multiple = ratio * static_cast<float>(k);
    const float p = RoundSmall(multiple);
    if (p != 0.0f && std::fabs(multiple - p) < kTolerance) return k;
    if (rest < 0x1p-20f) return 0;
    const float inverse = 1.0f / rest;
    const int quotient = static_cast<int>(inverse);
    rest = inverse - static_cast<float>(quotient);
    previous = std::exchange(k, quotient * k + previous);
  }
  return 0;
}

// Most blocks of trained weights are no multiples of anything, and this must find it out at once.
// An amax of f32 weights has too many bits for a bf16 scale. Otherwise one other value tells: it is
// p / k of amax in lowest terms, and only multiples of that k come into question. The smallest that
// serves is taken, so that the integers have no common factor without need.
std::optional<float> FindExactScale(std::span<const float> values, float amax,
                                    WeightFormat format) {
  if (format.blocked() && !MayBeMultipleOfBf16(amax, format.type)) return std::nullopt;
  const auto other =
      std::ranges::find_if(values, [amax](float v) { return v != 0.0f && std::fabs(v) != amax; });
  const float ratio = other == values.end() ? 1.0f : std::fabs(*other) / amax;
  const int limit = MaxMultiple(format.type);
  const int step = SmallestMultiplier(ratio, limit);
  if (step == 0) return std::nullopt;
  for (int k = step; k <= limit; k += step) {
    if (const auto scale = ExactScale(values, amax, k, format)) return scale;
  }
  return std::nullopt;
}

}  // namespace

float MaxMagnitude(std::span<const float> values) {
  // Magnitudes order as their bits do, NaN last.
  uint32_t bits = 0;
  for (const float v : values) bits = std::max(bits, std::bit_cast<uint32_t>(v) & 0x7FFFFFFFu);
  return std::bit_cast<float>(bits);
}

float ChooseScale(std::span<const float> values, float amax, WeightFormat format) {
  if (amax < kMinWeightAmax) return 0.0f;
  if (const auto exact = FindExactScale(values, amax, format)) return *exact;
  const auto largest = static_cast<float>(MaxInteger(format.type));
  float scale = StoredScale(amax / largest, format);
  while (!std::isfinite(largest * scale)) scale = StoredBelow(scale, format);
  return scale;
}

}  // namespace sluice
