// Rows of a matrix side by side: the searches do the same for every row, so the same column of
// several rows lies together and the compiler uses what vectors the CPU has.
#ifndef SLUICE_QUANT_QUANTIZER_LANES_H_
#define SLUICE_QUANT_QUANTIZER_LANES_H_

#include <array>
#include <cstddef>
#include <vector>

#include "sluice/format.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

// Rows that are worked on together, and that a thread takes at a time.
inline constexpr size_t kLaneRows = 32;

struct alignas(64) Lanes {
  std::array<float, kLaneRows> v{};
  float& operator[](size_t i) { return v[i]; }
  float operator[](size_t i) const { return v[i]; }
};

// A whole number as float; |x| < 2^22. (Adding 1.5 · 2^23 leaves no fraction bits.)
inline float RoundSmall(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return (x + kMagic) - kMagic;
}

// The integer nearest to x within the range of `type`, as float; the lowest for NaN.
struct IntegerGrid {
  explicit IntegerGrid(WeightType type)
      : lowest(static_cast<float>(MinInteger(type))),
        highest(static_cast<float>(MaxInteger(type))) {}
  float Nearest(float x) const {
    const float low = x > lowest ? x : lowest;
    return RoundSmall(low > highest ? highest : low);
  }
  float lowest;
  float highest;
};

// 1 / scale; 0 for scale 0, which gives integers 0.
inline float InverseScale(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_LANES_H_
