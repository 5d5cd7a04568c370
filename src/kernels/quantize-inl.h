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

// Added to a small number, it leaves that number, rounded half to even, in the low bits.
inline constexpr float kRounder = 0x1.8p23f;

// Rounds n <= 32 values times `inverse` to int8, zeros up to 32; returns the offset, −8 · their
// sum.
HWY_INLINE int32_t QuantizeBlock(const float* x, size_t n, float inverse, int8_t* values) {
  const QuantizeTag d;
  const hn::RebindToUnsigned<QuantizeTag> du;
  const hn::Rebind<uint8_t, QuantizeTag> du8;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, inverse);
  auto sum = hn::Zero(du);
  for (size_t i = 0; i < kActivationBlock; i += lanes) {
    const auto v = i + lanes <= n ? hn::LoadU(d, x + i)
                   : i < n        ? hn::LoadN(d, x + i, n - i)
                                  : hn::Zero(d);
    // Conversion to integers would do, but Highway mends what it does with large numbers.
    const auto q = hn::BitCast(du, hn::Add(hn::Mul(v, factor), hn::Set(d, kRounder)));
    sum = hn::Add(sum, q);
    hn::StoreU(hn::TruncateTo(du8, q), du8, reinterpret_cast<uint8_t*>(values) + i);
  }
  constexpr uint32_t kRounders = uint32_t{kActivationBlock} * std::bit_cast<uint32_t>(kRounder);
  return -8 * static_cast<int32_t>(hn::ReduceSum(du, sum) - kRounders);
}

inline bool AllFinite(const float* x, size_t n) { return MaxAbsBits(x, n) < 0x7F800000u; }

// What values with a largest magnitude are stored as multiples of, and its inverse; both 0 where
// everything becomes 0. Returns whether all lanes are finite.
template <class D>
HWY_INLINE bool ScalesOf(D d, const uint32_t* max_bits, float* scales, float* inverses) {
  const hn::RebindToSigned<D> di;
  const auto bits = hn::LoadU(di, reinterpret_cast<const int32_t*>(max_bits));
  const auto finite = hn::Lt(bits, hn::Set(di, 0x7F800000));
  const auto some = hn::RebindMask(
      d, hn::And(finite, hn::Ge(bits, hn::Set(di, std::bit_cast<int32_t>(kMinAmax)))));
  // Where nothing is stored no exception is raised either.
  const auto amax = hn::IfThenElse(some, hn::BitCast(d, bits), hn::Set(d, 1.0f));
  const auto most = hn::Set(d, 127.0f);
  hn::StoreU(hn::IfThenElseZero(some, hn::Div(amax, most)), d, scales);
  hn::StoreU(hn::IfThenElseZero(some, hn::Div(most, amax)), d, inverses);
  return hn::AllTrue(di, finite);
}

// Blocks that are quantized side by side: each by itself is a chain of a reduction, two divisions
// and another reduction (what it gained: bench/README.md).
inline constexpr size_t kSideBySide = 16;

// Blocks of `n` values, the last of `last`; each operand's next block is a step away.
struct Blocks {
  const float* x;
  int8_t* values;
  float* scales;
  int32_t* offsets;
  size_t x_step;
  size_t value_step;
  size_t scale_step;
  size_t offset_step;
  size_t n;
  size_t last;
};

inline bool QuantizeSideBySide(const Blocks& all, size_t begin, size_t count, bool to_end) {
  const Blocks blocks = all;  // in locals, since a vector store may alias anything
  alignas(kAlignment) uint32_t max_bits[kSideBySide] = {};
  alignas(kAlignment) float scales[kSideBySide];
  alignas(kAlignment) float inverses[kSideBySide];
  const auto size = [&](size_t i) { return to_end && i + 1 == count ? blocks.last : blocks.n; };
  const float* x = blocks.x + begin * blocks.x_step;
  for (size_t i = 0; i < count; ++i) max_bits[i] = MaxAbsBits(x + i * blocks.x_step, size(i));
  const hn::CappedTag<float, kSideBySide> d;
  bool finite = true;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    finite = ScalesOf(d, max_bits + i, scales + i, inverses + i) && finite;
  }
  for (size_t i = 0; i < count; ++i) {
    const size_t b = begin + i;
    blocks.scales[b * blocks.scale_step] = scales[i];
    // NaN · 0 would survive the multiplication, and its conversion differs between CPUs.
    blocks.offsets[b * blocks.offset_step] =
        QuantizeBlock(x + i * blocks.x_step, max_bits[i] < 0x7F800000u ? size(i) : 0, inverses[i],
                      blocks.values + b * blocks.value_step);
  }
  return finite;
}

inline bool QuantizeAll(const Blocks& blocks, size_t count) {
  bool finite = true;
  for (size_t b = 0; b < count; b += kSideBySide) {
    const size_t some = HWY_MIN(count - b, kSideBySide);
    finite = QuantizeSideBySide(blocks, b, some, b + some == count) && finite;
  }
  return finite;
}

inline bool QuantizeBlocks(const QuantizeArgs& args) {
  if (args.n <= kActivationBlock) {  // rows of one block: all of them are neighbours
    return QuantizeAll({args.x, args.values, args.scales, args.offsets, args.x_stride,
                        args.value_stride, args.scale_stride, args.offset_stride, args.n, args.n},
                       args.n == 0 ? 0 : args.rows);
  }
  bool finite = true;
  const size_t blocks = DivCeil(args.n, kActivationBlock);
  for (size_t r = 0; r < args.rows; ++r) {
    const Blocks row = {args.x + r * args.x_stride,
                        args.values + r * args.value_stride,
                        args.scales + r * args.scale_stride,
                        args.offsets + r * args.offset_stride,
                        kActivationBlock,
                        kActivationBlock,
                        1,
                        1,
                        kActivationBlock,
                        args.n - (blocks - 1) * kActivationBlock};
    finite = QuantizeAll(row, blocks) && finite;
  }
  return finite;
}

inline bool QuantizeRow(const float* x, size_t n, int8_t* values, float* scale, int32_t* offsets,
                        int32_t* total_offset) {
  const hn::CappedTag<float, 1> d;
  const uint32_t max_bits = MaxAbsBits(x, n);
  float inverse = 0.0f;
  const bool finite = ScalesOf(d, &max_bits, scale, &inverse);
  int32_t total = 0;
  for (size_t begin = 0, b = 0; begin < n; begin += kActivationBlock, ++b) {
    const size_t count = finite ? HWY_MIN(n - begin, kActivationBlock) : 0;
    offsets[b] = QuantizeBlock(x + begin, count, inverse, values + begin);
    total += offsets[b];
  }
  *total_offset = total;
  return finite;
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_QUANTIZE_INL_H_
