// The 4-way dot product: acc[lane] += Σ_{j<4} w[4·lane + j] · x[4·lane + j], exact in int32.
//
// Small classes hide how an instruction set multiplies bytes; the kernels above them are written
// once: NibbleDot for int4 weights as stored, 0…15; ByteDot for int8 weights as its Prepare makes
// them from the stored bytes; PanelByteDot for int8 weights in the form that a panel holds. Sums
// are kept in a form of the class's own:
//
//   s = Dot::Begin(start);   { 8 × s = Dot::Add(s, w, x);   s = Dot::Carry(s); } …;   Dot::End(s)
//
// The sums start at kStart · (−8 · Σx). What Add takes for x is the class's own too: of the step-th
// four activations of 32, Dot::Row32::Four<step>() or Dot::Four<step>(address). Steps come in
// ascending order. Where kTwoSteps is set, Add takes the weights and activations of two at once.
#ifndef SLUICE_SRC_KERNELS_DOT4_INL_H_
#define SLUICE_SRC_KERNELS_DOT4_INL_H_

#include <cstring>

#include "hwy/cache_control.h"
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
template <class V>
HWY_INLINE void PinRegister([[maybe_unused]] V& v) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86
  asm("" : "+v"(v.raw));
#elif HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_ARM
  asm("" : "+w"(v.raw));
#endif
}

// Hides where a pointer points: memory behind it is then read and written where the code says so.
// (GCC moved a tile's float sums out of the loop over blocks, into registers that there are none
// left of, and so onto the stack.)
template <class T>
HWY_INLINE void OpaquePointer([[maybe_unused]] T*& p) {
#if HWY_COMPILER_GCC_ACTUAL
  asm("" : "+r"(p));
#endif
}

// What is read behind the pointer from here on is read after the vector is computed, as far as the
// compiler is concerned; the CPU sees no difference.
template <class V, class T>
HWY_INLINE void ReadAfter([[maybe_unused]] V& v, [[maybe_unused]] T*& p) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_ARM_A64
  asm("" : "+w"(v), "+r"(p));
#endif
}

// No memory is read before this that is read after it in the text.
HWY_INLINE void CompilerBarrier() {
#if HWY_COMPILER_GCC_ACTUAL
  asm volatile("" ::: "memory");
#endif
}

// Asks memory for a line.
HWY_INLINE void PrefetchLine(const void* p) {
#if HWY_ARCH_X86
  hwy::Prefetch(static_cast<const uint8_t*>(p));
#else  // GCC 14 sees that Highway's function does nothing it knows of, and drops the call.
  __builtin_prefetch(p);
#endif
}

// Four activations in every lane.
HWY_INLINE VI BroadcastFour(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return hn::Set(LaneTag(), four);
}

// Whether bytes are multiplied and added in one instruction. Emulations are long: tall tiles of
// them gain nothing and compile for minutes.
#if defined(SLUICE_DOT4_AVX_VNNI) || defined(SLUICE_DOT4_SDOT) || \
    (HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86)
inline constexpr bool kOneInstruction = true;
#else
inline constexpr bool kOneInstruction = false;
#endif

// Columns of a token side by side in ActivationTiles.
#ifdef SLUICE_DOT4_SMMLA
inline constexpr size_t kDotColumns = 8;
#else
inline constexpr size_t kDotColumns = kTileK;
#endif

// What most classes are: one register of sums. Members that differ are declared anew.
struct PlainSums {
  // Activations as they lie in memory.
  template <size_t kStep>
  static HWY_INLINE VI Four(const int8_t* x) {
    return BroadcastFour(x);
  }
  struct Row32 {
    const int8_t* x;
    template <size_t kStep>
    HWY_INLINE VI Four() const {
      return BroadcastFour(x + kStep * kTileK);
    }
  };
  static constexpr int kStart = 0;
  static constexpr bool kCarries = false;  // Carry does something
  static constexpr bool kTwoSteps = false;
  static constexpr size_t kXBytes = 1;  // of an activation
  using Sum = VI;
  static HWY_INLINE Sum Begin(VI start) { return start; }
  static HWY_INLINE Sum Carry(Sum sum) { return sum; }
  static HWY_INLINE VI End(Sum sum) { return sum; }
  static HWY_INLINE void Pin(Sum& sum) { PinRegister(sum); }
  template <class T>
  static HWY_INLINE void ReadAfterSum(Sum& sum, T*& p) {
    ReadAfter(sum.raw, p);
  }
  static HWY_INLINE VU8 Prepare(VU8 w) { return w; }
};

#if defined(SLUICE_DOT4_AVX_VNNI) || (HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86)

// VPDPBUSD: unsigned weights times signed activations, wrapping, so that sums of w + 128 beyond
// 2^31 come back when the start value is in.
struct NibbleDot : PlainSums {
  static constexpr int kStart = 1;
  static HWY_INLINE Sum Add(Sum sum, VU8 w, VI x) {
#ifdef SLUICE_DOT4_AVX_VNNI
    return VI{_mm256_dpbusd_avx_epi32(sum.raw, w.raw, x.raw)};
#else
    const hn::Repartition<int8_t, LaneTag> bytes;
    return hn::SumOfMulQuadAccumulate(LaneTag(), w, hn::BitCast(bytes, x), sum);
#endif
  }
};
struct ByteDot : NibbleDot {
  static constexpr int kStart = 16;  // of w + 128
  static HWY_INLINE VU8 Prepare(VU8 w) { return hn::Xor(w, hn::Set(ByteTag(), 0x80)); }
};
using PanelByteDot = ByteDot;

#elif defined(SLUICE_DOT4_SDOT)

// SDOT takes four activations from a lane: 32 of them are two registers, and none is broadcast.
struct ByteDot : PlainSums {
  template <int kLane>
  struct Lane {
    int8x16_t x;
  };
  struct Row32 {
    explicit HWY_INLINE Row32(const int8_t* x) : halves{vld1q_s8(x), vld1q_s8(x + 16)} {}
    template <size_t kStep>
    HWY_INLINE Lane<kStep % 4> Four() const {
      return {halves[kStep / 4]};
    }
    int8x16_t halves[2];
  };
  template <int kLane>
  static HWY_INLINE Sum Add(Sum sum, VU8 w, Lane<kLane> x) {
    return VI(vdotq_laneq_s32(sum.raw, vreinterpretq_s8_u8(w.raw), x.x, kLane));
  }
};
struct NibbleDot : ByteDot {
  static constexpr int kStart = 1;
};
using PanelByteDot = ByteDot;

#elif HWY_ARCH_X86

// PMADDUBSW multiplies unsigned by signed bytes and adds pairs, saturating at 16 bits. Of int4
// weights a pair is at most 2·15·127 = 3 810, so eight steps fit: 30 480 < 32 767. The whole sum
// over 32 values stays in 16 bits and is widened once.
struct NibbleDot : PlainSums {
  static constexpr int kStart = 1;
  static constexpr bool kCarries = true;
  using Words = hn::Repartition<int16_t, LaneTag>;
  using Bytes = hn::Repartition<int8_t, LaneTag>;
  struct Sum {
    hn::Vec<Words> words;
    VI lanes;
  };
  static HWY_INLINE Sum Begin(VI start) { return {hn::Zero(Words()), start}; }
  static HWY_INLINE Sum Carry(Sum sum) {
    const VI wide = hn::WidenMulPairwiseAdd(LaneTag(), sum.words, hn::Set(Words(), 1));
    return {hn::Zero(Words()), hn::Add(sum.lanes, wide)};
  }
  static HWY_INLINE VI End(Sum sum) { return sum.lanes; }
  static HWY_INLINE void Pin(Sum& sum) { PinRegister(sum.lanes); }
  static HWY_INLINE Sum Add(Sum sum, VU8 w, VI x) {
    const auto pairs = hn::SatWidenMulPairwiseAdd(Words(), w, hn::BitCast(Bytes(), x));
    sum.words = hn::Add(sum.words, pairs);
    PinRegister(sum.words);  // one sum, not a tree of sums in as many registers
    return sum;
  }
};

// |w| · (sign(w)·x): 2·127·127 = 32 258, and 2·128·127 = 32 512 when a foreign file holds −128,
// whose absolute value is 128 as an unsigned byte. Widened at once.
struct ByteDot : PlainSums {
  using Words = hn::Repartition<int16_t, LaneTag>;
  using Bytes = hn::Repartition<int8_t, LaneTag>;
  static HWY_INLINE Sum Add(Sum sum, VU8 w, VI x) {
    const auto weights = hn::BitCast(Bytes(), w);
    const auto signed_x = hn::IfNegativeThenNegOrUndefIfZero(weights, hn::BitCast(Bytes(), x));
    const auto pairs =
        hn::SatWidenMulPairwiseAdd(Words(), hn::BitCast(ByteTag(), hn::Abs(weights)), signed_x);
    sum = hn::Add(sum, hn::WidenMulPairwiseAdd(LaneTag(), pairs, hn::Set(Words(), 1)));
    PinRegister(sum);
    return sum;
  }
};

// Two weights and two activations of 16 bits in each lane, PMADDWD: half the instructions that
// ByteDot takes for as many, once the panel has been widened.
struct PanelByteDot : PlainSums {
  static constexpr size_t kXBytes = 2;
  static HWY_INLINE Sum Add(Sum sum, VU8 w, VI x) {
    const hn::Repartition<int16_t, LaneTag> words;
    sum = hn::Add(sum,
                  hn::WidenMulPairwiseAdd(LaneTag(), hn::BitCast(words, w), hn::BitCast(words, x)));
    PinRegister(sum);
    return sum;
  }
};

#elif HWY_ARCH_ARM_A64

// SMULL and SMLAL multiply eight bytes and add the products to words of 16 bits: of a step, the
// four columns of rows 0 and 1 to the low words, of rows 2 and 3 to the high ones.
struct WordDot : PlainSums {
  template <size_t kStep>
  struct Step {
    int8x16_t x;
  };
  template <size_t kStep>
  static HWY_INLINE Step<kStep> Four(const int8_t* x) {
    return {vreinterpretq_s8_s32(BroadcastFour(x).raw)};
  }
  struct Row32 {
    const int8_t* x;
    template <size_t kStep>
    HWY_INLINE Step<kStep> Four() const {
      return WordDot::Four<kStep>(x + kStep * kTileK);
    }
  };
  struct Words {
    int16x8_t low;
    int16x8_t high;
  };
  template <size_t kStep>
  static HWY_INLINE Words Multiply(VU8 weights, Step<kStep> x) {
    const int8x16_t w = vreinterpretq_s8_u8(weights.raw);
    return {vmull_s8(vget_low_s8(w), vget_low_s8(x.x)), vmull_high_s8(w, x.x)};
  }
  template <size_t kStep>
  static HWY_INLINE Words MultiplyAdd(Words sum, VU8 weights, Step<kStep> x) {
    const int8x16_t w = vreinterpretq_s8_u8(weights.raw);
    return {vmlal_s8(sum.low, vget_low_s8(w), vget_low_s8(x.x)), vmlal_high_s8(sum.high, w, x.x)};
  }
};

// Of int4 weights, 0…15, and activations of −127…127 a product is at most 15·127 = 1 905. A word
// takes one product in each of the eight steps of 32 columns: at most 8·1 905 = 15 240 < 2^15. The
// pairwise sum that ends them, two words of one row, is at most 30 480 < 2^15; only then 32 bits.
struct NibbleDot : WordDot {
  static constexpr int kStart = 1;
  static constexpr bool kCarries = true;
  struct Sum {
    Words words;
    int32x4_t lanes;
  };
  static HWY_INLINE Sum Begin(VI start) { return {{vdupq_n_s16(0), vdupq_n_s16(0)}, start.raw}; }
  template <size_t kStep>
  static HWY_INLINE Sum Add(Sum sum, VU8 w, Step<kStep> x) {
    sum.words = kStep == 0 ? Multiply(w, x) : MultiplyAdd(sum.words, w, x);
    return sum;
  }
  static HWY_INLINE Sum Carry(Sum sum) {
    sum.lanes = vpadalq_s16(sum.lanes, vpaddq_s16(sum.words.low, sum.words.high));
    return sum;
  }
  static HWY_INLINE VI End(Sum sum) { return VI(sum.lanes); }
  template <class T>
  static HWY_INLINE void ReadAfterSum(Sum& sum, T*& p) {
    ReadAfter(sum.words.low, p);
  }
  static HWY_INLINE void Pin(Sum& sum) {
#if HWY_COMPILER_GCC_ACTUAL
    asm("" : "+w"(sum.lanes));
#endif
  }
};

// Of int8 weights a product is at most 128·127 = 16 256 (128 if a foreign file holds −128, and then
// with an activation of −127…127), so a word takes two of them, 32 512 < 2^15, and every two steps
// add their pairs to 32 bits: of a row two sums, which End adds. The words are gone by then; four
// rows' more would hold a register each from step to step.
struct ByteDot : WordDot {
  static constexpr bool kTwoSteps = true;
  struct Sum {
    int32x4_t low;
    int32x4_t high;
  };
  static HWY_INLINE Sum Begin(VI start) {
    return {vzip1q_s32(start.raw, vdupq_n_s32(0)), vzip2q_s32(start.raw, vdupq_n_s32(0))};
  }
  template <size_t kStep>
  static HWY_INLINE Sum Add(Sum sum, VU8 w, VU8 next_w, Step<kStep> x, Step<kStep + 1> next_x) {
    return Collect(sum, MultiplyAdd(Multiply(w, x), next_w, next_x));
  }
  static HWY_INLINE Sum Collect(Sum sum, Words words) {
    return {vpadalq_s16(sum.low, words.low), vpadalq_s16(sum.high, words.high)};
  }
  static HWY_INLINE VI End(Sum sum) { return VI(vpaddq_s32(sum.low, sum.high)); }
  static HWY_INLINE void Pin(Sum& sum) {
#if HWY_COMPILER_GCC_ACTUAL
    asm("" : "+w"(sum.low), "+w"(sum.high));
#endif
  }
  template <class T>
  static HWY_INLINE void ReadAfterSum(Sum& sum, T*& p) {
    ReadAfter(sum.high, p);
  }
};
using PanelByteDot = ByteDot;

#else

// Multiply and add, as the instruction set widens: exact everywhere.
struct ByteDot : PlainSums {
  static HWY_INLINE Sum Add(Sum sum, VU8 w, VI x) {
    const hn::Repartition<int8_t, LaneTag> bytes;
    return hn::SumOfMulQuadAccumulate(LaneTag(), hn::BitCast(bytes, w), hn::BitCast(bytes, x), sum);
  }
};
struct NibbleDot : ByteDot {
  static constexpr int kStart = 1;
};
using PanelByteDot = ByteDot;

#endif

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_DOT4_INL_H_
