// Register tiles of few tokens: kT tokens × kS strips of packed weights, over all columns.
#ifndef SLUICE_SRC_KERNELS_TILE_INL_H_
#define SLUICE_SRC_KERNELS_TILE_INL_H_

#include <bit>

#include "hwy/cache_control.h"
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
template <Mode kMode>
inline constexpr bool kWeightsBlocked =
    kMode == Mode::kBothBlocked || kMode == Mode::kWeightBlocked;
template <Mode kMode>
inline constexpr bool kXBlocked = kMode == Mode::kBothBlocked || kMode == Mode::kXBlocked;

// Bytes ahead of the packed weights being read, per strip: with few tokens they come from DRAM.
// More tokens dwell longer on a line, but also have fewer strips side by side.
template <size_t kT>
inline constexpr size_t kPrefetchBytes = kT == 1 ? 512 : 1024;

struct Int8Weights {
  using Dot = ByteDot;
  static constexpr size_t kLineK = kTileK;
  static constexpr size_t kSteps = 1;  // vectors of 4 K values in a line
  static HWY_INLINE VU8 Load(const uint8_t* p) { return Dot::Prepare(hn::Load(ByteTag(), p)); }
  static HWY_INLINE VU8 Step(VU8 line, size_t) { return line; }
};

struct Int4Weights {
  using Dot = NibbleDot;
  static constexpr size_t kLineK = 2 * kTileK;
  static constexpr size_t kSteps = 2;
  static HWY_INLINE VU8 Load(const uint8_t* p) { return hn::Load(ByteTag(), p); }
  static HWY_INLINE VU8 Step(VU8 line, size_t step) {
    const auto nibble = hn::Set(ByteTag(), 0x0F);
    if (step == 0) return hn::And(line, nibble);
    // There is no shift of bytes on x86; the bits that a wider shift brings in are masked.
    const hn::Repartition<uint16_t, ByteTag> words;
    return hn::And(hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(words, line))), nibble);
  }
};

// The pointers that one register tile walks.
template <size_t kT, size_t kS>
struct TilePointers {
  const uint8_t* weights[kS];
  const std::byte* scales[kS];
  const int8_t* x[kT];
  const float* x_scales[kT];
  const int32_t* offsets[kT];
  int32_t total_offsets[kT];
};

template <size_t kT, size_t kS>
HWY_INLINE TilePointers<kT, kS> PointersOf(const DotArgs& args, size_t strip, size_t token) {
  TilePointers<kT, kS> p;
  Unroll<kS>([&](auto s) SLUICE_LAMBDA {
    p.weights[s] = reinterpret_cast<const uint8_t*>(args.weights[strip + s]);
    p.scales[s] = args.scales[strip + s];
  });
  const ActivationRows& x = *args.x;
  Unroll<kT>([&](auto t) SLUICE_LAMBDA {
    const size_t row = args.first_token + token + t;
    p.x[t] = x.values + row * x.value_stride;
    p.x_scales[t] = x.scales + row * x.scale_stride;
    p.offsets[t] = x.offsets + row * x.offset_stride;
    p.total_offsets[t] = x.format == ActivationFormat::kRow ? x.total_offset[row] : 0;
  });
  return p;
}

// Adds the 32 columns from k on to the sums: the innermost code, without a loop. (As a loop of
// lines GCC 14 kept every accumulator twice and moved each from one copy to the other in every
// turn: 0.6 of the speed.)
template <class W, size_t kT, size_t kS>
HWY_INLINE void Accumulate32(const TilePointers<kT, kS>& p, size_t k,
                             typename W::Dot::Sum (&sum)[kT][kS * kVectors]) {
  constexpr size_t kC = kS * kVectors;
  constexpr size_t kBytesPerK = kLineBytes / W::kLineK;
  Unroll<kActivationBlock / W::kLineK>([&](auto i) SLUICE_LAMBDA {
    VU8 w[kC];
    Unroll<kS>([&](auto s) SLUICE_LAMBDA {
      const uint8_t* line = p.weights[s] + k * kBytesPerK + i * kLineBytes;
      hwy::Prefetch(line + kPrefetchBytes<kT>);
      Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
        w[s * kVectors + v] = W::Load(line + v * kLanes * sizeof(int32_t));
      });
    });
    Unroll<W::kSteps>([&](auto step) SLUICE_LAMBDA {
      VU8 part[kC];
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { part[c] = W::Step(w[c], step); });
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VI x = BroadcastFour(p.x[t] + k + i * W::kLineK + step * kTileK);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = W::Dot::Add(sum[t][c], part[c], x); });
      });
    });
  });
  if constexpr (W::Dot::kCarries) {
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA { sum[t][c] = W::Dot::Carry(sum[t][c]); });
  }
}

// Adds the columns [begin, end), at least 32.
template <class W, size_t kT, size_t kS>
HWY_INLINE void Accumulate(const TilePointers<kT, kS>& p, size_t begin, size_t end,
                           typename W::Dot::Sum (&sum)[kT][kS * kVectors]) {
  do {
    Accumulate32<W, kT, kS>(p, begin, sum);
    begin += kActivationBlock;
    UnrollTile<kT, kS * kVectors>([&](auto t, auto c) SLUICE_LAMBDA { W::Dot::Pin(sum[t][c]); });
  } while (begin < end);
}

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

// What multiplies the sum of a block. A scale that is constant along K is not looked at.
template <Mode kMode>
HWY_INLINE VF BlockScale(VF w_scale, VF x_scale) {
  if constexpr (kMode == Mode::kBothBlocked) {
    return hn::Mul(w_scale, x_scale);
  } else {
    return kWeightsBlocked<kMode> ? w_scale : x_scale;
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

template <class W, Mode kMode, size_t kT, size_t kS>
struct Tile {
  static constexpr size_t kC = kS * kVectors;

  // All columns.
  static void Run(const DotArgs& args, size_t strip, size_t token) {
    const TilePointers<kT, kS> p = PointersOf<kT, kS>(args, strip, token);
    VF acc[kT][kC];
    if constexpr (kMode == Mode::kBothConstant) {
      typename W::Dot::Sum sum[kT][kC];
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VI start = hn::Set(LaneTag(), W::Dot::kStart * p.total_offsets[t]);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = W::Dot::Begin(start); });
      });
      Accumulate<W, kT, kS>(p, 0, args.layout.padded_cols(), sum);
      UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
        acc[t][c] = hn::ConvertTo(FloatTag(), W::Dot::End(sum[t][c]));
      });
    } else {
      UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA { acc[t][c] = hn::Zero(FloatTag()); });
      // Blocks of 32, the most common, without the loops that longer ones take.
      if (kXBlocked<kMode> || args.layout.block() == kActivationBlock) {
        Blocks<true>(p, args.layout, acc);
      } else {
        Blocks<false>(p, args.layout, acc);
      }
    }
    Store(p, acc, args.out + token * kDotStride + strip * kStripRows);
  }

 private:
  template <bool kBlocksOf32>
  static HWY_INLINE void Blocks(const TilePointers<kT, kS>& p, const PackedLayout& layout,
                                VF (&acc)[kT][kC]) {
    // In shifts: a division took longer than a block of one token.
    const size_t shift = static_cast<size_t>(std::countr_zero(layout.block()));
    const size_t block = kBlocksOf32 ? kActivationBlock : layout.block();
    size_t begin = 0;
    do {
      typename W::Dot::Sum sum[kT][kC];
      Block<kBlocksOf32>(p, begin, begin + block, sum);
      Fold(p, begin >> shift, begin / kActivationBlock, sum, acc);
      begin += block;
    } while (begin < layout.cols);
  }

  // Sums of the block [begin, end) of K, in all lanes.
  template <bool kBlockOf32>
  static HWY_INLINE void Block(const TilePointers<kT, kS>& p, size_t begin, size_t end,
                               typename W::Dot::Sum (&sum)[kT][kC]) {
    Unroll<kT>([&](auto t) SLUICE_LAMBDA {
      int32_t start = 0;
      if constexpr (W::Dot::kStart != 0) {
        if constexpr (kBlockOf32) {
          start = W::Dot::kStart * p.offsets[t][begin / kActivationBlock];
        } else {
          for (size_t k = begin; k < end; k += kActivationBlock) {
            start += W::Dot::kStart * p.offsets[t][k / kActivationBlock];
          }
        }
      }
      Unroll<kC>([&](auto c)
                     SLUICE_LAMBDA { sum[t][c] = W::Dot::Begin(hn::Set(LaneTag(), start)); });
    });
    if constexpr (kBlockOf32) {
      Accumulate32<W, kT, kS>(p, begin, sum);
    } else {
      Accumulate<W, kT, kS>(p, begin, end, sum);
    }
  }

  // acc = fma(float(s), scale, acc).
  static HWY_INLINE void Fold(const TilePointers<kT, kS>& p, size_t weight_block, size_t x_block,
                              const typename W::Dot::Sum (&sum)[kT][kC], VF (&acc)[kT][kC]) {
    const FloatTag df;
    VF w_scale[kC];
    Unroll<kC>([&](auto c) SLUICE_LAMBDA {
      w_scale[c] = hn::Zero(df);
      if constexpr (kWeightsBlocked<kMode>) {
        w_scale[c] = LoadScales<true>(p.scales[c / kVectors], weight_block, c % kVectors);
      }
    });
    Unroll<kT>([&](auto t) SLUICE_LAMBDA {
      VF x_scale = hn::Zero(df);
      if constexpr (kXBlocked<kMode>) x_scale = hn::Set(df, p.x_scales[t][x_block]);
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        acc[t][c] = hn::MulAdd(hn::ConvertTo(df, W::Dot::End(sum[t][c])),
                               BlockScale<kMode>(w_scale[c], x_scale), acc[t][c]);
      });
    });
  }

  // Applies the scales that are constant along K and stores.
  static HWY_INLINE void Store(const TilePointers<kT, kS>& p, const VF (&acc)[kT][kC], float* out) {
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      const VF y = ApplyConstantScales<kMode>(acc[t][c], p.scales[c / kVectors], c % kVectors,
                                              p.x_scales[t]);
      hn::Store(y, FloatTag(), out + t * kDotStride + c * kLanes);
    });
  }
};

// Float weights: acc = fma(w, x, acc), k ascending. kBf16: half the bytes, widened in registers.
template <bool kBf16, size_t kT, size_t kS>
struct FloatTile {
  static constexpr size_t kC = kS * kVectors;

  static void Run(const DotArgs& args, size_t strip, size_t token) {
    const FloatTag df;
    VF acc[kT][kC];
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA { acc[t][c] = hn::Zero(df); });
    const size_t stride = args.x->float_stride;
    const float* x = args.x->floats + (args.first_token + token) * stride;
    for (size_t k = 0; k < args.layout.cols; ++k) {
      VF w[kC];
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        w[c] = LoadScales<kBf16>(args.weights[strip + c / kVectors], k, c % kVectors);
      });
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VF xk = hn::Set(df, x[t * stride + k]);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { acc[t][c] = hn::MulAdd(w[c], xk, acc[t][c]); });
      });
    }
    float* out = args.out + token * kDotStride + strip * kStripRows;
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      hn::Store(acc[t][c], df, out + t * kDotStride + c * kLanes);
    });
  }
};

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_TILE_INL_H_
