// The 4-way dot product: acc[lane] += Σ_{j<4} w[4·lane + j] · x[4·lane + j], exact in int32.
//
// One small class, Dot4, hides how an instruction set multiplies bytes; the kernels above it are
// written once. Sums are kept in a form of its own:
//
//   s = Dot4::Begin(start);   { 8 × s = Dot4::Nibble(s, w, x);   s = Dot4::Carry(s); } …;
//   Dot4::End(s)
//
// Nibble takes int4 weights as stored, 0…15; Int8 takes int8 weights as Prepare makes them from the
// stored bytes. The sums start at −8 · Σx (nibbles) and at kInt8Start · (−8 · Σx) (int8).
#ifndef SLUICE_SRC_KERNELS_DOT4_INL_H_
#define SLUICE_SRC_KERNELS_DOT4_INL_H_

#include <cstring>

#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// A strip's 16 rows are 1, 2 or 4 vectors of int32 lanes, each lane a row.
using LaneTag = hn::CappedTag<int32_t, kStripRows>;
using FloatTag = hn::RebindToFloat<LaneTag>;
using ByteTag = hn::Repartition<uint8_t, LaneTag>;
using VI = hn::Vec<LaneTag>;
using VF = hn::Vec<FloatTag>;
using VU8 = hn::Vec<ByteTag>;
inline constexpr size_t kLanes = HWY_MAX_LANES_D(LaneTag);
inline constexpr size_t kVectors = kStripRows / kLanes;

// Keeps a variable that a loop carries in one register. GCC 14 kept such sums twice and moved each
// from one copy to the other in every turn, or spilled: 0.6 of the speed.
HWY_INLINE void PinRegister([[maybe_unused]] VI& v) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86
  asm("" : "+v"(v.raw));
#elif HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_ARM
  asm("" : "+w"(v.raw));
#endif
}

// Four activations in every lane.
HWY_INLINE VI BroadcastFour(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return hn::Set(LaneTag(), four);
}

#if defined(SLUICE_DOT4_AVX_VNNI)

struct Dot4 {
  static constexpr int kInt8Start = 16;  // int8 weights become unsigned: w + 128
  static constexpr bool kCarries = false;
  using Sum = VI;
  static HWY_INLINE Sum Begin(VI start) { return start; }
  static HWY_INLINE Sum Carry(Sum sum) { return sum; }
  static HWY_INLINE VI End(Sum sum) { return sum; }
  static HWY_INLINE void Pin(Sum& sum) { PinRegister(sum); }
  static HWY_INLINE VU8 Prepare(VU8 w) { return hn::Xor(w, hn::Set(ByteTag(), 0x80)); }
  static HWY_INLINE Sum Nibble(Sum sum, VU8 w, VI x) {
    return VI{_mm256_dpbusd_avx_epi32(sum.raw, w.raw, x.raw)};
  }
  static HWY_INLINE Sum Int8(Sum sum, VU8 w, VI x) { return Nibble(sum, w, x); }
};

#elif defined(SLUICE_DOT4_SDOT)

struct Dot4 {
  static constexpr int kInt8Start = 0;  // SDOT is signed: no correction
  static constexpr bool kCarries = false;
  using Sum = VI;
  static HWY_INLINE Sum Begin(VI start) { return start; }
  static HWY_INLINE Sum Carry(Sum sum) { return sum; }
  static HWY_INLINE VI End(Sum sum) { return sum; }
  static HWY_INLINE void Pin(Sum& sum) { PinRegister(sum); }
  static HWY_INLINE VU8 Prepare(VU8 w) { return w; }
  static HWY_INLINE Sum Nibble(Sum sum, VU8 w, VI x) {
    return VI(vdotq_s32(sum.raw, vreinterpretq_s8_u8(w.raw), vreinterpretq_s8_s32(x.raw)));
  }
  static HWY_INLINE Sum Int8(Sum sum, VU8 w, VI x) { return Nibble(sum, w, x); }
};

#elif HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86

// VPDPBUSD: unsigned weights times signed activations, wrapping, so that sums of w + 128 beyond
// 2^31 come back when the start value is in.
struct Dot4 {
  static constexpr int kInt8Start = 16;
  static constexpr bool kCarries = false;
  using Sum = VI;
  static HWY_INLINE Sum Begin(VI start) { return start; }
  static HWY_INLINE Sum Carry(Sum sum) { return sum; }
  static HWY_INLINE VI End(Sum sum) { return sum; }
  static HWY_INLINE void Pin(Sum& sum) { PinRegister(sum); }
  static HWY_INLINE VU8 Prepare(VU8 w) { return hn::Xor(w, hn::Set(ByteTag(), 0x80)); }
  static HWY_INLINE Sum Nibble(Sum sum, VU8 w, VI x) {
    const hn::Repartition<int8_t, LaneTag> di8;
    return hn::SumOfMulQuadAccumulate(LaneTag(), w, hn::BitCast(di8, x), sum);
  }
  static HWY_INLINE Sum Int8(Sum sum, VU8 w, VI x) { return Nibble(sum, w, x); }
};

#elif HWY_ARCH_X86

// PMADDUBSW multiplies unsigned by signed bytes and adds pairs, saturating at 16 bits.
//   int4: a pair is at most 2·15·127 = 3 810, so eight steps fit: 30 480 < 32 767. The whole sum
//   over 32
//         values stays in 16 bits and is widened once.
//   int8: |w| · (sign(w)·x): 2·127·127 = 32 258, and 2·128·127 = 32 512 when a foreign file holds
//         −128, whose absolute value is 128 as an unsigned byte. Widened at once.
struct Dot4 {
  static constexpr int kInt8Start = 0;
  static constexpr bool kCarries = true;
  using Words = hn::Repartition<int16_t, LaneTag>;
  using Bytes = hn::Repartition<int8_t, LaneTag>;
  struct Sum {
    hn::Vec<Words> words;
    VI lanes;
  };
  static HWY_INLINE Sum Begin(VI start) { return {hn::Zero(Words()), start}; }
  static HWY_INLINE Sum Carry(Sum sum) {
    return {hn::Zero(Words()), hn::Add(sum.lanes, Widen(sum.words))};
  }
  static HWY_INLINE VI End(Sum sum) { return sum.lanes; }
  static HWY_INLINE void Pin(Sum& sum) { PinRegister(sum.lanes); }
  static HWY_INLINE VU8 Prepare(VU8 w) { return w; }
  static HWY_INLINE Sum Nibble(Sum sum, VU8 w, VI x) {
    const auto pairs = hn::SatWidenMulPairwiseAdd(Words(), w, hn::BitCast(Bytes(), x));
    return {hn::Add(sum.words, pairs), sum.lanes};
  }
  static HWY_INLINE Sum Int8(Sum sum, VU8 w, VI x) {
    const auto weights = hn::BitCast(Bytes(), w);
    const auto signed_x = hn::IfNegativeThenNegOrUndefIfZero(weights, hn::BitCast(Bytes(), x));
    const auto pairs =
        hn::SatWidenMulPairwiseAdd(Words(), hn::BitCast(ByteTag(), hn::Abs(weights)), signed_x);
    return {sum.words, hn::Add(sum.lanes, Widen(pairs))};
  }

 private:
  static HWY_INLINE VI Widen(hn::Vec<Words> words) {
    return hn::WidenMulPairwiseAdd(LaneTag(), words, hn::Set(Words(), 1));
  }
};

#else

// Multiply and add, as the instruction set widens: exact everywhere.
struct Dot4 {
  static constexpr int kInt8Start = 0;
  using Bytes = hn::Repartition<int8_t, LaneTag>;
  static constexpr bool kCarries = false;
  using Sum = VI;
  static HWY_INLINE Sum Begin(VI start) { return start; }
  static HWY_INLINE Sum Carry(Sum sum) { return sum; }
  static HWY_INLINE VI End(Sum sum) { return sum; }
  static HWY_INLINE void Pin(Sum& sum) { PinRegister(sum); }
  static HWY_INLINE VU8 Prepare(VU8 w) { return w; }
  static HWY_INLINE Sum Nibble(Sum sum, VU8 w, VI x) { return Int8(sum, w, x); }
  static HWY_INLINE Sum Int8(Sum sum, VU8 w, VI x) {
    return hn::SumOfMulQuadAccumulate(LaneTag(), hn::BitCast(Bytes(), w), hn::BitCast(Bytes(), x),
                                      sum);
  }
};

#endif

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_DOT4_INL_H_
