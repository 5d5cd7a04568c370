// Register tiles: kT tokens × kS strips of packed weights, over a range of columns.
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

// Bytes ahead of the packed weights being read, per strip: with few tokens they come from DRAM.
// More tokens dwell longer on a line, but also have fewer strips side by side.
template <size_t kT>
inline constexpr size_t kPrefetchBytes = kT == 1 ? 512 : 1024;

struct Int8Weights {
  using Dot = ByteDot;
  static constexpr bool kFromMemory = true;
  static constexpr size_t kLineK = kTileK;
  static constexpr size_t kSteps = 1;  // vectors of 4 K values in a line
  static HWY_INLINE VU8 Load(const uint8_t* p) { return Dot::Prepare(hn::Load(ByteTag(), p)); }
  static HWY_INLINE VU8 Step(VU8 line, size_t) { return line; }
};

struct Int4Weights {
  using Dot = NibbleDot;
  static constexpr bool kFromMemory = true;
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

// Weights that a panel holds as the dot product takes them (panel-inl.h): one byte each, or 16
// bits.
template <class Packed>
struct PanelWeights {
  using Dot = std::conditional_t<std::is_same_v<Packed, Int8Weights>, PanelByteDot, NibbleDot>;
  static constexpr bool kFromMemory = false;
  static constexpr size_t kLineK = kTileK / Dot::kXBytes;
  static constexpr size_t kSteps = 1;
  static HWY_INLINE VU8 Load(const uint8_t* p) { return hn::Load(ByteTag(), p); }
  static HWY_INLINE VU8 Step(VU8 line, size_t) { return line; }
};

// Columns [begin, end), whole blocks. A tile that does not begin at the row's start goes on from
// what it left in its output: float sums, or integer sums as bits where both scales are constant.
struct TileRange {
  size_t begin = 0;
  size_t end = 0;
  bool first = true;
  bool last = true;
};

// Asks memory, into the second-level cache, for what the next call will read: a kernel of many
// tokens dwells on its weights, and memory would idle meanwhile. Every 32 columns a tile asks for
// two lines of each strip and goes on by `step` bytes, so that requests spread over all of its
// work. (Asked for all at once, the lines fill the line buffers, and the tiles wait behind them.
// With a loop and an end instead, GCC copied every sum.)
template <size_t kS>
struct Ahead {
  const std::byte* at[kS];
  size_t step;
  HWY_INLINE void Ask() {
    Unroll<kS>([&](auto s) SLUICE_LAMBDA {
      __builtin_prefetch(at[s], 0, 2);
      __builtin_prefetch(at[s] + kLineBytes, 0, 2);
      at[s] += step;
    });
  }
};

// The pointers that one register tile walks.
template <size_t kT, size_t kS>
struct TilePointers {
  const uint8_t* weights[kS];
  size_t weights_begin;  // the column of weights[s][0]
  const std::byte* scales[kS];
  const int8_t* x[kT];
  size_t x_begin;  // the column of x[t][0]
  const float* x_scales[kT];
  const int32_t* offsets[kT];
  int32_t total_offsets[kT];
  Ahead<kS>* ahead;  // of a panel
};

template <size_t kT, size_t kS>
HWY_INLINE TilePointers<kT, kS> PointersOf(const DotArgs& args, size_t strip, size_t token) {
  TilePointers<kT, kS> p;
  p.weights_begin = 0;
  p.x_begin = 0;
  p.ahead = nullptr;
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
      const uint8_t* line = p.weights[s] + (k - p.weights_begin) * kBytesPerK + i * kLineBytes;
      if constexpr (W::kFromMemory) hwy::Prefetch(line + kPrefetchBytes<kT>);
      Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
        w[s * kVectors + v] = W::Load(line + v * kLanes * sizeof(int32_t));
      });
    });
    Unroll<W::kSteps>([&](auto step) SLUICE_LAMBDA {
      VU8 part[kC];
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { part[c] = W::Step(w[c], step); });
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VI x = BroadcastFour(p.x[t] + (k - p.x_begin) * W::Dot::kXBytes +
                                   (i * W::kLineK + step * kTileK) * W::Dot::kXBytes);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = W::Dot::Add(sum[t][c], part[c], x); });
      });
    });
  });
  if constexpr (!W::kFromMemory) p.ahead->Ask();
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

template <class W, Mode kMode, size_t kT, size_t kS>
struct Tile {
  static constexpr size_t kC = kS * kVectors;
  static constexpr bool kWeightsBlocked =
      kMode == Mode::kBothBlocked || kMode == Mode::kWeightBlocked;
  static constexpr bool kXBlocked = kMode == Mode::kBothBlocked || kMode == Mode::kXBlocked;

  // All columns, from the packed weights.
  static void Run(const DotArgs& args, size_t strip, size_t token) {
    const TilePointers<kT, kS> p = PointersOf<kT, kS>(args, strip, token);
    Compute(p, args.layout, {.begin = 0, .end = args.layout.padded_cols()},
            args.out + token * args.out_stride + strip * kStripRows, args.out_stride);
  }

  static HWY_INLINE void Compute(const TilePointers<kT, kS>& p, const PackedLayout& layout,
                                 const TileRange& range, float* out, size_t stride) {
    const FloatTag df;
    VF acc[kT][kC];
    if constexpr (kMode == Mode::kBothConstant) {
      typename W::Dot::Sum sum[kT][kC];
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VI start = hn::Set(LaneTag(), W::Dot::kStart * p.total_offsets[t]);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA {
          sum[t][c] = W::Dot::Begin(
              range.first ? start
                          : hn::BitCast(LaneTag(), hn::Load(df, out + t * stride + c * kLanes)));
        });
      });
      Accumulate<W, kT, kS>(p, range.begin, range.end, sum);
      if (!range.last) {
        UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
          hn::Store(hn::BitCast(df, W::Dot::End(sum[t][c])), df, out + t * stride + c * kLanes);
        });
        return;
      }
      UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
        acc[t][c] = hn::ConvertTo(df, W::Dot::End(sum[t][c]));
      });
    } else {
      UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
        acc[t][c] = range.first ? hn::Zero(df) : hn::Load(df, out + t * stride + c * kLanes);
      });
      // Blocks of 32, the most common, without the loops that longer ones take.
      if (kXBlocked || layout.block() == kActivationBlock) {
        Blocks<true>(p, layout, range, acc);
      } else {
        Blocks<false>(p, layout, range, acc);
      }
      if (!range.last) {
        UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
          hn::Store(acc[t][c], df, out + t * stride + c * kLanes);
        });
        return;
      }
    }
    Store(p, acc, out, stride);
  }

 private:
  template <bool kBlocksOf32>
  static HWY_INLINE void Blocks(const TilePointers<kT, kS>& p, const PackedLayout& layout,
                                const TileRange& range, VF (&acc)[kT][kC]) {
    // In shifts: a division took longer than a block of one token.
    const size_t shift = static_cast<size_t>(std::countr_zero(layout.block()));
    const size_t block = kBlocksOf32 ? kActivationBlock : layout.block();
    const size_t end = HWY_MIN(range.end, layout.cols);
    size_t begin = range.begin;
    do {
      typename W::Dot::Sum sum[kT][kC];
      Block<kBlocksOf32>(p, begin, begin + block, sum);
      Fold(p, begin >> shift, begin / kActivationBlock, sum, acc);
      begin += block;
    } while (begin < end);
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
    if constexpr (kWeightsBlocked) {
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        w_scale[c] = LoadScales<true>(p.scales[c / kVectors], weight_block, c % kVectors);
      });
    }
    Unroll<kT>([&](auto t) SLUICE_LAMBDA {
      VF x_scale;
      if constexpr (kXBlocked) x_scale = hn::Set(df, p.x_scales[t][x_block]);
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        VF scale;
        if constexpr (kMode == Mode::kBothBlocked) {
          scale = hn::Mul(w_scale[c], x_scale);
        } else if constexpr (kWeightsBlocked) {
          scale = w_scale[c];
        } else {
          scale = x_scale;
        }
        acc[t][c] = hn::MulAdd(hn::ConvertTo(df, W::Dot::End(sum[t][c])), scale, acc[t][c]);
      });
    });
  }

  // Applies the scales that are constant along K and stores.
  static HWY_INLINE void Store(const TilePointers<kT, kS>& p, const VF (&acc)[kT][kC], float* out,
                               size_t stride) {
    const FloatTag df;
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      VF y = acc[t][c];
      if constexpr (kMode == Mode::kWeightBlocked) {
        y = hn::Mul(y, hn::Set(df, p.x_scales[t][0]));
      } else if constexpr (kMode == Mode::kXBlocked) {
        y = hn::Mul(y, LoadScales<false>(p.scales[c / kVectors], 0, c % kVectors));
      } else if constexpr (kMode == Mode::kBothConstant) {
        const VF w_scale = LoadScales<false>(p.scales[c / kVectors], 0, c % kVectors);
        y = hn::Mul(y, hn::Mul(w_scale, hn::Set(df, p.x_scales[t][0])));
      }
      hn::Store(y, df, out + t * stride + c * kLanes);
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
    float* out = args.out + token * args.out_stride + strip * kStripRows;
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      hn::Store(acc[t][c], df, out + t * args.out_stride + c * kLanes);
    });
  }
};

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_TILE_INL_H_
