// What the register tiles have in common: scales, and how packed weights become bytes to multiply.
#ifndef SLUICE_SRC_KERNELS_TILE_INL_H_
#define SLUICE_SRC_KERNELS_TILE_INL_H_

#include "src/kernels/dot4-inl.h"
#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// How scales meet integer sums (rule 2 of the contract).
enum class Mode {
  kBothBlocked,    // acc = fma(s, w_scale · x_scale, acc), blocks of 32
  kWeightBlocked,  // acc = fma(s, w_scale, acc), the weight's blocks; y = acc · x_scale
  kXBlocked,       // acc = fma(s, x_scale, acc), blocks of 32; y = acc · w_scale
  kBothConstant,   // y = s · (w_scale · x_scale)
};
// (Functions of a value: clang-tidy takes what a variable template does with it for a C cast.)
consteval bool WeightsBlocked(Mode mode) {
  return mode == Mode::kBothBlocked || mode == Mode::kWeightBlocked;
}
consteval bool XBlocked(Mode mode) { return mode == Mode::kBothBlocked || mode == Mode::kXBlocked; }

// How a tile reads weights. kFromMemory: they are packed, and may come from DRAM. kUnpacks: the
// tile leaves them, as it multiplies them, in a panel.
struct Int8Weights {
  using Dot = ByteDot;
  static constexpr bool kFromMemory = true;
  static constexpr bool kUnpacks = false;
  static constexpr size_t kLineK = kTileK;
  static constexpr size_t kSteps = 1;  // vectors of 4 K values in a line
  static HWY_INLINE VU8 Load(const uint8_t* p) { return Dot::Prepare(hn::Load(ByteTag(), p)); }
  static HWY_INLINE VU8 Step(VU8 line, size_t) { return line; }
};

struct Int4Weights {
  using Dot = NibbleDot;
  static constexpr bool kFromMemory = true;
  static constexpr bool kUnpacks = false;
  static constexpr size_t kLineK = 2 * kTileK;
  static constexpr size_t kSteps = 2;
  static HWY_INLINE VU8 Load(const uint8_t* p) { return hn::Load(ByteTag(), p); }
  static HWY_INLINE VU8 Step(VU8 line, size_t step) {
    const auto nibble = hn::Set(ByteTag(), 0x0F);
    if (step == 0) return hn::And(line, nibble);
#if HWY_ARCH_ARM || HWY_TARGET <= HWY_AVX3_DL
    return hn::ShiftRight<4>(line);  // one instruction; of x86, GF2P8AFFINEQB
#endif
    // There is no shift of bytes on other x86; the bits that a wider shift brings in are masked.
    const hn::Repartition<uint16_t, ByteTag> words;
    return hn::And(hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(words, line))), nibble);
  }
};

// The 16 scales of block `b` of a strip, as floats, in vector `v`.
template <bool kBlocked>
HWY_INLINE VF LoadScales(const std::byte* scales, size_t b, size_t v) {
  const FloatTag df;
  const size_t index = b * kStripRows + v * kLanes;
  if constexpr (kBlocked) {
    const hn::Rebind<hwy::bfloat16_t, FloatTag> dh;
    return hn::PromoteTo(df,
                         hn::Load(dh, reinterpret_cast<const hwy::bfloat16_t*>(scales) + index));
  } else {
    return hn::Load(df, reinterpret_cast<const float*>(scales) + index);
  }
}

// The same of the whole strip. Where a vector has four rows, two are loaded at once.
HWY_INLINE void LoadBlockScales(const std::byte* scales, size_t b, VF (&to)[kVectors]) {
#if HWY_ARCH_ARM_A64
  const auto* from = reinterpret_cast<const uint16_t*>(scales) + b * kStripRows;
  Unroll<kVectors / 2>([&](auto pair) SLUICE_LAMBDA {
    const uint16x8_t two = vld1q_u16(from + pair * 2 * kLanes);
    to[2 * pair] = VF(vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(two), 16)));
    to[2 * pair + 1] = VF(vreinterpretq_f32_u32(vshll_high_n_u16(two, 16)));
  });
#else
  Unroll<kVectors>([&](auto v) SLUICE_LAMBDA { to[v] = LoadScales<true>(scales, b, v); });
#endif
}

// What multiplies the sum of a block. A scale that is constant along K is not looked at.
template <Mode kMode>
HWY_INLINE VF BlockScale(VF w_scale, VF x_scale) {
  if constexpr (kMode == Mode::kBothBlocked) {
    return hn::Mul(w_scale, x_scale);
  } else {
    return WeightsBlocked(kMode) ? w_scale : x_scale;
  }
}

// Vector `v` of a strip's results, from its sums over all of K; `w_scales` are the strip's,
// `x_scale` the token's.
template <Mode kMode>
HWY_INLINE VF ApplyConstantScales(VF sum, const std::byte* w_scales, size_t v,
                                  const float* x_scale) {
  const FloatTag df;
  if constexpr (kMode == Mode::kWeightBlocked) {
    return hn::Mul(sum, hn::Set(df, *x_scale));
  } else if constexpr (kMode == Mode::kXBlocked) {
    return hn::Mul(sum, LoadScales<false>(w_scales, 0, v));
  } else if constexpr (kMode == Mode::kBothConstant) {
    return hn::Mul(sum, hn::Mul(LoadScales<false>(w_scales, 0, v), hn::Set(df, *x_scale)));
  } else {
    return sum;
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_TILE_INL_H_
