// Activations to int8, symmetric, half to even.
#ifndef SLUICE_SRC_KERNELS_QUANTIZE_INL_H_
#define SLUICE_SRC_KERNELS_QUANTIZE_INL_H_

#include <bit>

#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// 32 values are a whole number of these vectors on every target.
using QuantizeTag = hn::CappedTag<float, kActivationBlock>;

// The largest magnitude of n values, as its bits: ordered like the magnitudes, with ∞ and NaN on
// top.
HWY_INLINE uint32_t MaxAbsBits(const float* x, size_t n) {
  const QuantizeTag d;
  const hn::RebindToSigned<QuantizeTag> di;
  const size_t lanes = hn::Lanes(d);
  auto max_bits = hn::Zero(di);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    max_bits = hn::Max(max_bits, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  }
  if (i < n) max_bits = hn::Max(max_bits, hn::BitCast(di, hn::Abs(hn::LoadN(d, x + i, n - i))));
  return static_cast<uint32_t>(hn::ReduceMax(di, max_bits));
}

// Rounds n <= 32 values times `inverse` to int8, zeros up to 32; returns the offset, −8 · their
// sum.
HWY_INLINE int32_t QuantizeBlock(const float* x, size_t n, float inverse, int8_t* values) {
  const QuantizeTag d;
  const hn::RebindToSigned<QuantizeTag> di;
  const hn::Rebind<int8_t, QuantizeTag> di8;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, inverse);
  auto sum = hn::Zero(di);
  for (size_t i = 0; i < kActivationBlock; i += lanes) {
    const auto v = i + lanes <= n ? hn::LoadU(d, x + i)
                   : i < n        ? hn::LoadN(d, x + i, n - i)
                                  : hn::Zero(d);
    const auto q = hn::NearestInt(hn::Mul(v, factor));
    sum = hn::Add(sum, q);
    hn::StoreU(hn::DemoteTo(di8, q), di8, values + i);
  }
  return -8 * hn::ReduceSum(di, sum);
}

inline bool AllFinite(const float* x, size_t n) { return MaxAbsBits(x, n) < 0x7F800000u; }

struct RowScale {
  float scale;
  float inverse;  // 0 where everything becomes 0
  bool finite;
};

inline RowScale ScaleOf(uint32_t max_bits) {
  const float amax = std::bit_cast<float>(max_bits);
  const bool finite = max_bits < 0x7F800000u;
  if (!finite || amax < kMinAmax) return {0.0f, 0.0f, finite};
  return {amax / 127.0f, 127.0f / amax, true};
}

inline bool QuantizeBlocks(const float* x, size_t n, int8_t* values, float* scales,
                           int32_t* offsets) {
  bool finite = true;
  for (size_t begin = 0, b = 0; begin < n; begin += kActivationBlock, ++b) {
    const size_t count = HWY_MIN(n - begin, kActivationBlock);
    const RowScale scale = ScaleOf(MaxAbsBits(x + begin, count));
    finite = finite && scale.finite;
    scales[b] = scale.scale;
    // NaN · 0 would survive the multiplication, and its conversion differs between CPUs.
    offsets[b] = QuantizeBlock(x + begin, scale.finite ? count : 0, scale.inverse, values + begin);
  }
  return finite;
}

inline bool QuantizeRow(const float* x, size_t n, int8_t* values, float* scale, int32_t* offsets,
                        int32_t* total_offset) {
  const RowScale row = ScaleOf(MaxAbsBits(x, n));
  *scale = row.scale;
  *total_offset = 0;
  for (size_t begin = 0, b = 0; begin < n; begin += kActivationBlock, ++b) {
    const size_t count = row.finite ? HWY_MIN(n - begin, kActivationBlock) : 0;
    offsets[b] = QuantizeBlock(x + begin, count, row.inverse, values + begin);
    *total_offset += offsets[b];
  }
  return row.finite;
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_QUANTIZE_INL_H_
