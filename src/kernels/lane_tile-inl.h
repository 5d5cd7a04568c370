// A tile of two or more tokens for ARM's dot products: kT tokens times one strip.
//
// SDOT multiplies four columns of four rows by four columns of one token, which it takes from a
// lane; so a register of activations serves four tokens, and none is broadcast. SMMLA multiplies
// eight columns of two rows by eight columns of two tokens. Both leave enough registers for the
// float sums of eight tokens beside their integer sums: nothing but activations and weights is
// loaded, and nothing is stored.
//
// What lies where in the sums of four rows, for tokens t and u:
//
//   SDOT   t: r0 r1 r2 r3
//   SMMLA  t and u: r0t r2t r0u r2u, then r1t r3t r1u r3u. Weights become operands by one TRN1 and
//          one TRN2 of two registers of four columns, which leaves rows in that order. Scales are
//          put in the same order, and only the end result in rows again.
#ifndef SLUICE_SRC_KERNELS_LANE_TILE_INL_H_
#define SLUICE_SRC_KERNELS_LANE_TILE_INL_H_

#include <arm_neon.h>

#include <bit>

#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"
#include "src/kernels/token_tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// The most tokens of a tile: 8 integer and 8 float sums of four rows, and two registers of
// activations for a step. (With 12 tokens unpacking takes less of the time, but GCC spills.)
inline constexpr size_t kLaneTile = 8;

// Columns of a tile in one go: its activations, 8 KiB, and the strip's weights, at most 16, stay
// in the first-level cache while the tile takes its four rows of them at a time.
inline constexpr size_t kLaneCols = 1024;
static_assert(kLaneCols % kMaxBlock == 0);

// What the tile takes for weights: signed bytes, so that sums start at zero and no start value
// takes an instruction for every sum.
template <class W>
struct LaneWeights;

template <>
struct LaneWeights<Int8Weights> {
  static constexpr int kFractionBits = 0;
  static HWY_INLINE uint8x16_t Load(const uint8_t* p) { return vld1q_u8(p); }
  template <size_t kStep>
  static HWY_INLINE int8x16_t Step(uint8x16_t line) {
    return vreinterpretq_s8_u8(line);
  }
};

// Nibbles hold the weight + 8. With its highest bit flipped a nibble is the weight in two's
// complement; as the upper half of a byte it is 16 times the weight, and the conversion of the sum
// to float divides by 16. That is exact: 16 · kMaxK · 8 · 127 = 2 130 706 432 < 2^31, and the
// conversion rounds once.
template <>
struct LaneWeights<Int4Weights> {
  static constexpr int kFractionBits = 4;
  static_assert(16 * int64_t{kMaxK} * 8 * 127 < int64_t{1} << 31);
  static HWY_INLINE uint8x16_t Load(const uint8_t* p) {
    return veorq_u8(vld1q_u8(p), vdupq_n_u8(0x88));
  }
  template <size_t kStep>
  static HWY_INLINE int8x16_t Step(uint8x16_t line) {
    return vreinterpretq_s8_u8(kStep == 0 ? vshlq_n_u8(line, 4) : vandq_u8(line, vdupq_n_u8(0xF0)));
  }
};

template <class W, Mode kMode, size_t kT, size_t kS>
class LaneTile {
  static_assert(kS == 1 && kT >= 2 && kVectors == 4);

 public:
  static HWY_NOINLINE void Run(const TileStrips<1>& strip, const TileTokens& args) {
    for (size_t v = 0; v < kVectors; v += kV) {
      if constexpr (kMode == Mode::kBothConstant) {
        Constant(strip, v, args);
      } else if (XBlocked(kMode) || strip.layout.block() == kActivationBlock) {
        Blocked<true>(strip, v,
                      args);  // the most common, without the loops that longer blocks take
      } else {
        Blocked<false>(strip, v, args);
      }
    }
  }

 private:
  static constexpr bool kPairs = kDotColumns == 8;  // SMMLA
  static constexpr size_t kSums = kPairs ? kT + kT % 2 : kT;
  // Vectors of four rows side by side, as the registers allow.
  static constexpr bool kFloats = kMode != Mode::kBothConstant;
  static constexpr size_t kMostSums = kFloats ? 12 : W::kSteps == 2 ? 16 : 24;
  static constexpr size_t kV = kSums * 4 <= kMostSums ? 4 : kSums * 2 <= kMostSums ? 2 : 1;
  static constexpr size_t kXBytes = TileBlockBytes(kT);
  static constexpr size_t kScalesAt = kT * kActivationBlock;
  static constexpr size_t kWeightBytes = kActivationBlock / W::kLineK * kLineBytes;
  static constexpr size_t kVectorBytes = 16;

  using Packed = LaneWeights<W>;
  using Sums = int32x4_t[kSums][kV];
  using Floats = float32x4_t[kSums][kV];

  // Something of each token, side by side in memory, as lanes. The last register may begin among
  // the tokens of the one before it (or, of fewer than four tokens, before the first), so that
  // nothing is read behind the block.
  struct Lanes {
    static constexpr size_t Begin(size_t t) { return t / 4 * 4 + 4 <= kT ? t / 4 * 4 : kT - 4; }
    static constexpr size_t Lane(size_t t) { return t - Begin(t); }
    explicit HWY_INLINE Lanes(const std::byte* p) {
      Unroll<DivCeil(kT, 4)>([&](auto j) SLUICE_LAMBDA {
        constexpr auto kAt = static_cast<ptrdiff_t>(Begin(4 * j)) * 4;
        q[j] = LoadWhole(p + kAt);
      });
    }
    float32x4_t q[DivCeil(kT, 4)];
  };

  // The scale of each token in its lanes of a pair's sums.
  static HWY_INLINE float32x4_t OfPair(const std::byte* p, size_t t) {
    const auto* each = reinterpret_cast<const float*>(p);
    if (t + 1 == kT) return vdupq_n_f32(each[t]);
    const float32x2_t two = vld1_f32(each + t);
    return vzip1q_f32(vcombine_f32(two, two), vcombine_f32(two, two));
  }

  // One load: GCC 14 loads each lane by itself, if it may.
  static HWY_INLINE float32x4_t LoadWhole(const std::byte* p) {
#if HWY_COMPILER_GCC_ACTUAL
    float32x4_t q;
    asm("ldr %q0, %1" : "=w"(q) : "m"(*reinterpret_cast<const std::byte(*)[16]>(p)));
    return q;
#else
    return vld1q_f32(reinterpret_cast<const float*>(p));
#endif
  }

  // The compiler does not see where the value comes from.
  template <class V>
  static HWY_INLINE void Hide([[maybe_unused]] V& v) {
#if HWY_COMPILER_GCC_ACTUAL
    asm("" : "+w"(v));
#endif
  }

  // Adds 32 columns: the innermost code, without a loop. GCC is kept from loading activations long
  // before they are needed: there are no registers for them.
  static HWY_INLINE void Add32(const uint8_t* weights, const std::byte* x, Sums& sum) {
    uint8x16_t line[kV];
    Unroll<kActivationBlock / kDotColumns>([&](auto g) SLUICE_LAMBDA {
      const std::byte* from = x + g * kT * kDotColumns;
      if constexpr (kPairs) {
        AddPairs<g>(weights, from, sum);
      } else {
        constexpr size_t kQ = DivCeil(kT, 4);
        int8x16_t q[kQ];
        Unroll<kQ>([&](auto j) SLUICE_LAMBDA {
          q[j] = vld1q_s8(reinterpret_cast<const int8_t*>(from + j * kVectorBytes));
        });
        Unroll<kV>([&](auto c) SLUICE_LAMBDA {
          if constexpr (g % W::kSteps == 0) {
            line[c] = Packed::Load(weights + g / W::kSteps * kLineBytes + c * kVectorBytes);
          }
          const int8x16_t w = Packed::template Step<g % W::kSteps>(line[c]);
          Unroll<kT>([&](auto t) SLUICE_LAMBDA {
            sum[t][c] = vdotq_laneq_s32(sum[t][c], w, q[t / 4], t % 4);
          });
        });
      }
      CompilerBarrier();
    });
  }

#ifdef SLUICE_DOT4_SMMLA
  // Group g of eight columns.
  template <size_t kGroup>
  static HWY_INLINE void AddPairs(const uint8_t* weights, const std::byte* x, Sums& sum) {
    int8x16_t w[kV][2];
    Unroll<kV>([&](auto c) SLUICE_LAMBDA {
      constexpr size_t kLines = 2 / W::kSteps;
      const uint8_t* at = weights + kGroup * kLines * kLineBytes + c * kVectorBytes;
      const uint8x16_t line = Packed::Load(at);
      const uint8x16_t next = kLines == 1 ? line : Packed::Load(at + kLineBytes);
      const int32x4_t a = vreinterpretq_s32_s8(Packed::template Step<0>(line));
      const int32x4_t b = vreinterpretq_s32_s8(Packed::template Step<W::kSteps - 1>(next));
      w[c][0] = vreinterpretq_s8_s32(vtrn1q_s32(a, b));
      w[c][1] = vreinterpretq_s8_s32(vtrn2q_s32(a, b));
    });
    Unroll<kSums / 2>([&](auto p) SLUICE_LAMBDA {
      const int8x16_t two = vld1q_s8(reinterpret_cast<const int8_t*>(x + p * kVectorBytes));
      Unroll<kV>([&](auto c) SLUICE_LAMBDA {
        sum[2 * p][c] = vmmlaq_s32(sum[2 * p][c], two, w[c][0]);
        sum[2 * p + 1][c] = vmmlaq_s32(sum[2 * p + 1][c], two, w[c][1]);
      });
    });
  }
#endif

  template <bool kBlocksOf32>
  static HWY_INLINE void Blocked(const TileStrips<1>& strip, size_t v, const TileTokens& args) {
    const PackedLayout& layout = strip.layout;
    const size_t shift = static_cast<size_t>(std::countr_zero(layout.block()));
    const size_t blocks = kBlocksOf32 ? 1 : layout.block() / kActivationBlock;
    const size_t end = HWY_MIN(strip.end, layout.cols);
    const uint8_t* weights = strip.weights[0] + v * kVectorBytes;
    const std::byte* x = args.x;
    Floats acc;
    if (strip.first()) {
      UnrollTile<kSums, kV>([&](auto s, auto c) SLUICE_LAMBDA { acc[s][c] = vdupq_n_f32(0); });
    } else {
      LoadSums(args.out + v * kLanes, acc);
    }
    // Sums begin with zeros from memory: a move takes a slot of the units that multiply.
    alignas(kVectorBytes) static constexpr int32_t kZeros[kSums * kV * kLanes] = {};
    const int32_t* zeros = kZeros;
    OpaquePointer(zeros);
    size_t k = strip.begin;
    do {
      Sums sum;
      UnrollTile<kSums, kV>([&](auto s, auto c) SLUICE_LAMBDA {
        sum[s][c] = vld1q_s32(zeros + (s * kV + c) * kLanes);
      });
      OpaquePointer(zeros);
      const std::byte* scales = x + kScalesAt;
      for (size_t b = 0;;) {
        PrefetchLine(weights + kTilePrefetchBytes);
        Add32(weights, x, sum);
        weights += kWeightBytes;
        x += kXBytes;
        if (kBlocksOf32 || ++b == blocks) break;
      }
      Fold(strip.scales[0], k >> shift, v, scales, sum, acc);
      k += blocks * kActivationBlock;
    } while (k < end);
    StoreSums(strip, v, acc, args);
  }

  // acc = fma(float(s), scale, acc).
  static HWY_INLINE void Fold(const std::byte* w_scales, size_t block, size_t v,
                              const std::byte* x_scales, const Sums& sum, Floats& acc) {
    float32x4_t w[kV][2];
    Unroll<kV>([&](auto c) SLUICE_LAMBDA {
      if constexpr (!WeightsBlocked(kMode)) return;
      const float32x4_t rows = LoadScales<true>(w_scales, block, v + c).raw;
      w[c][0] = kPairs ? vuzp1q_f32(rows, rows) : rows;
      w[c][1] = kPairs ? vuzp2q_f32(rows, rows) : rows;
    });
    const Lanes lanes(x_scales);
    Unroll<kSums>([&](auto s) SLUICE_LAMBDA {
      float32x4_t x = vdupq_n_f32(0);
      if constexpr (XBlocked(kMode)) {
        x = kPairs ? OfPair(x_scales, s / 2 * 2) : vdupq_laneq_f32(lanes.q[s / 4], Lanes::Lane(s));
      }
      Unroll<kV>([&](auto c) SLUICE_LAMBDA {
        const float32x4_t scale = BlockScale<kMode>(VF(w[c][s % 2]), VF(x)).raw;
        acc[s][c] = vfmaq_f32(acc[s][c], ToFloat(sum[s][c]), scale);
      });
    });
  }

  static HWY_INLINE float32x4_t ToFloat(int32x4_t sum) {
    if constexpr (Packed::kFractionBits == 0) return vcvtq_f32_s32(sum);
    return vcvtq_n_f32_s32(sum, HWY_MAX(Packed::kFractionBits, 1));
  }

  // Integer sums of all columns; between chunks they lie in the output, as bits.
  static HWY_INLINE void Constant(const TileStrips<1>& strip, size_t v, const TileTokens& args) {
    Sums sum;
    if (strip.first()) {
      UnrollTile<kSums, kV>([&](auto s, auto c) SLUICE_LAMBDA { sum[s][c] = vdupq_n_s32(0); });
    } else {
      Floats bits;
      LoadSums(args.out + v * kLanes, bits);
      UnrollTile<kSums, kV>([&](auto s, auto c)
                                SLUICE_LAMBDA { sum[s][c] = vreinterpretq_s32_f32(bits[s][c]); });
    }
    const uint8_t* weights = strip.weights[0] + v * kVectorBytes;
    const std::byte* x = args.x;
    const uint8_t* end = weights + (strip.end - strip.begin) / W::kLineK * kLineBytes;
    do {
      PrefetchLine(weights + kTilePrefetchBytes);
      Add32(weights, x, sum);
      weights += kWeightBytes;
      x += kXBytes;
      UnrollTile<kSums, kV>([&](auto s, auto c) SLUICE_LAMBDA { Hide(sum[s][c]); });
    } while (weights < end);
    Floats bits;
    const bool last = strip.last();
    UnrollTile<kSums, kV>([&](auto s, auto c) SLUICE_LAMBDA {
      bits[s][c] = last ? ToFloat(sum[s][c]) : vreinterpretq_f32_s32(sum[s][c]);
    });
    StoreSums(strip, v, bits, args);
  }

  static HWY_INLINE void LoadSums(const float* out, Floats& acc) {
    if constexpr (!kPairs) {
      UnrollTile<kT, kV>([&](auto t, auto c) SLUICE_LAMBDA {
        acc[t][c] = vld1q_f32(out + t * kDotStride + c * kLanes);
      });
    } else {
      UnrollTile<kSums / 2, kV>([&](auto p, auto c) SLUICE_LAMBDA {
        constexpr size_t kOther = HWY_MIN(2 * p + 1, kT - 1);
        const float32x4_t t = vld1q_f32(out + 2 * p * kDotStride + c * kLanes);
        const float32x4_t u = vld1q_f32(out + kOther * kDotStride + c * kLanes);
        acc[2 * p][c] = vuzp1q_f32(t, u);
        acc[2 * p + 1][c] = vuzp2q_f32(t, u);
      });
    }
  }

  // Stores float sums, or integer ones as bits; what the last columns leave with the scales that
  // are constant along K.
  static HWY_INLINE void StoreSums(const TileStrips<1>& strip, size_t v, const Floats& acc,
                                   const TileTokens& args) {
    const bool last = strip.last();
    UnrollTile<kT, kV>([&](auto t, auto c) SLUICE_LAMBDA {
      float32x4_t y = acc[t][c];
      if constexpr (kPairs) {
        constexpr size_t kPair = t / 2 * 2;
        y = t % 2 == 0 ? vzip1q_f32(acc[kPair][c], acc[kPair + 1][c])
                       : vzip2q_f32(acc[kPair][c], acc[kPair + 1][c]);
      }
      if (last) {
        y = ApplyConstantScales<kMode>(VF(y), strip.scales[0], v + c,
                                       args.x_scales + t * args.x_scale_stride)
                .raw;
      }
      vst1q_f32(args.out + t * kDotStride + (v + c) * kLanes, y);
    });
  }
};

// All strips of the call, in tiles of tokens.
template <class W, Mode kMode>
void RunLaneTiles(const DotArgs& args) {
  const size_t padded_cols = args.layout.padded_cols();
  for (size_t strip = 0; strip < args.num_strips; ++strip) {
    for (size_t begin = 0; begin < padded_cols; begin += kLaneCols) {
      TileStrips<1> strips;
      strips.layout = args.layout;
      strips.begin = begin;
      strips.end = HWY_MIN(begin + kLaneCols, padded_cols);
      strips.weights[0] =
          reinterpret_cast<const uint8_t*>(args.weights[strip]) + begin / W::kLineK * kLineBytes;
      strips.scales[0] = args.scales[strip];
      strips.ahead = nullptr;
      RunTokenTiles<LaneTile, W, kMode, kLaneTile, 1, 2, 1>(args, strip, strips);
    }
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_LANE_TILE_INL_H_
