// A tile of two or more tokens: kT tokens × kS strips, over packed weights or a panel of them.
//
// Tokens come in tiles (ActivationTiles), so that a tile walks one stream of them. All registers go
// to the integer sums: VPDPBUSD takes 5 to 6 cycles and two start in each, so that twelve sums side
// by side leave no slack, and any hiccup is lost time. Float sums are used once in a block and live
// in the output, which the first-level cache holds. A tile that does not begin at the row's start
// goes on from the sums that lie there, in the same order along K, so the results are the same
// bits.
#ifndef SLUICE_SRC_KERNELS_TOKEN_TILE_INL_H_
#define SLUICE_SRC_KERNELS_TOKEN_TILE_INL_H_

#include <bit>
#include <cstring>

#include "src/kernels/activation_tiles.h"
#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Asks memory, into the second-level cache, for what the next call will read: a kernel of many
// tokens dwells on its weights, and memory would idle meanwhile. A tile asks in every 32 columns
// for kLines lines of one strip and goes on by `step` bytes, so that requests spread over all of
// its work. (Asked for all at once, the lines fill the line buffers, and the tiles wait behind
// them.)
template <size_t kS>
struct Ahead {
  const std::byte* at[kS];
  size_t step = 0;
  size_t turn = 0;
  template <size_t kLines>
  HWY_INLINE void Ask() {
    const std::byte* line = at[turn % kS];
    at[turn++ % kS] = line + step;
#if HWY_ARCH_ARM  // where the loop took four instructions a line
    Unroll<kLines>([&](auto i) SLUICE_LAMBDA { __builtin_prefetch(line + i * kLineBytes, 0, 2); });
#else
    for (size_t i = 0; i < kLines; ++i) __builtin_prefetch(line + i * kLineBytes, 0, 2);
#endif
  }
};

// Bytes ahead of packed weights being read, per strip: they may come from DRAM.
inline constexpr size_t kTilePrefetchBytes = 1024;

// Bytes from a strip's line to its next: a panel holds the strips' lines side by side.
template <class W, size_t kS>
consteval size_t LineStride() {
  return W::kFromMemory ? kLineBytes : kS * kLineBytes;
}

// The strips of a tile over columns [begin, end), whole blocks, and what tiles of tokens share.
// Integer sums over earlier columns, or float ones, are in the output unless they are the first.
template <size_t kS>
struct TileStrips {
  PackedLayout layout;
  size_t begin;
  size_t end;
  const uint8_t* weights[kS];   // at column `begin`
  const std::byte* scales[kS];  // of the whole strips
  Ahead<kS>* ahead;             // what to ask for meanwhile; may be null for packed weights
  uint8_t* panel = nullptr;     // where a tile that unpacks leaves them
  bool first() const { return begin == 0; }
  bool last() const { return end == layout.padded_cols(); }
};

// What the next call reads of the strips' columns, from strip `strip` on, asked for `asks` times.
// Where the next call is unknown, lines of this strip again, which cost nothing.
template <size_t kS>
HWY_INLINE Ahead<kS> NextStrips(const DotArgs& args, size_t strip, const TileStrips<kS>& strips,
                                size_t asks) {
  const PackedLayout& layout = args.layout;
  const size_t bits = kStripRows * layout.weight_bits();
  Ahead<kS> ahead;
  for (size_t s = 0; s < kS; ++s) {
    ahead.at[s] = args.weights[strip + s];
    if (args.next_weights[strip + s] == nullptr) continue;
    ahead.at[s] = args.next_weights[strip + s] + strips.begin * bits / 8;
    ahead.step = DivCeil((strips.end - strips.begin) * bits / 8, HWY_MAX(asks / kS, size_t{1}));
    // Scales are few: they are asked for at once.
    if (!layout.format.blocked()) continue;
    const size_t scale_bytes = kStripRows * layout.scale_bytes_each();
    const std::byte* end = args.next_scales[strip + s] + strips.end / layout.block() * scale_bytes;
    const std::byte* at = args.next_scales[strip + s] + strips.begin / layout.block() * scale_bytes;
    for (; at < end; at += kLineBytes) __builtin_prefetch(at, 0, 2);
  }
  return ahead;
}

// What is a tile's own.
struct TileTokens {
  const std::byte* x;     // its block of the range's first columns
  const int8_t* wide_x;   // its values in 16 bits, from there on; of a wide panel
  const float* x_scales;  // of a row each, with `x_scale_stride`; ActivationFormat::kRow
  size_t x_scale_stride;
  const int32_t* total_offsets;
  float* out;
};

// kT tokens times kS strips.
template <class W, Mode kMode, size_t kT, size_t kS>
class TokenTile {
 public:
  static HWY_NOINLINE void Run(const TileStrips<kS>& strips, const TileTokens& args) {
    AllColumns(strips, args);
  }
  // (Its sums take two registers each.)
  SLUICE_SOURCE_ORDER static HWY_NOINLINE void Run(const TileStrips<kS>& strips,
                                                   const TileTokens& args)
    requires W::Dot::kTwoSteps
  {
    AllColumns(strips, args);
  }

 private:
  static HWY_INLINE void AllColumns(const TileStrips<kS>& strips, const TileTokens& args) {
    if constexpr (kMode == Mode::kBothConstant) {
      Constant(strips, args);
    } else if (XBlocked(kMode) || strips.layout.block() == kActivationBlock) {
      Blocked<true>(strips, args);  // the most common, without the loops that longer blocks take
    } else {
      Blocked<false>(strips, args);
    }
  }

  using Dot = typename W::Dot;
  static constexpr size_t kC = kS * kVectors;
  using Sums = typename Dot::Sum[kT][kC];
  static constexpr size_t kXBytes = TileBlockBytes(kT);
  static constexpr size_t kWideBytes = kT * kActivationBlock * sizeof(int16_t);
  static constexpr size_t kScalesAt = kT * kActivationBlock;
  static constexpr size_t kOffsetsAt = kScalesAt + kT * sizeof(float);
  static constexpr bool kWide = Dot::kXBytes == 2;
  static constexpr size_t kLineStride = LineStride<W, kS>();
  // Two tiles or more ask for a strip's lines, each for half of them at most.
  static constexpr size_t kAskedLines = HWY_ARCH_ARM ? kActivationBlock / W::kLineK / 2 : 8;

  // Where the tile is along K.
  struct Cursor {
    const uint8_t* weights[kS];
    const std::byte* x;
    const int8_t* values;
    uint8_t* panel;

    explicit HWY_INLINE Cursor(const TileStrips<kS>& strips, const TileTokens& args)
        : x(args.x),
          values(kWide ? args.wide_x : reinterpret_cast<const int8_t*>(args.x)),
          panel(strips.panel) {
      for (size_t s = 0; s < kS; ++s) weights[s] = strips.weights[s];
    }
    HWY_INLINE void Advance() {
      for (size_t s = 0; s < kS; ++s) weights[s] += kActivationBlock / W::kLineK * kLineStride;
      x += kXBytes;
      values += kWide ? kWideBytes : kXBytes;
      if constexpr (W::kUnpacks) panel += kActivationBlock / kTileK * kS * kLineBytes;
    }
    template <class T>
    HWY_INLINE T At(size_t offset, size_t t) const {
      T value;
      std::memcpy(&value, x + offset + t * sizeof(T), sizeof(T));
      return value;
    }
  };

  // Adds 32 columns: the innermost code, without a loop.
  static HWY_INLINE void Add32(const Cursor& at, Ahead<kS>* ahead, Sums& sum) {
    if constexpr (Dot::kTwoSteps) AddTwoByTwo(at, sum);
    Unroll<Dot::kTwoSteps ? 0 : kActivationBlock / W::kLineK>([&](auto i) SLUICE_LAMBDA {
      VU8 line[kC];
      Unroll<kS>([&](auto s) SLUICE_LAMBDA {
        const uint8_t* from = at.weights[s] + i * kLineStride;
        if constexpr (W::kFromMemory) PrefetchLine(from + kTilePrefetchBytes);
        Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
          line[s * kVectors + v] = W::Load(from + v * kLanes * sizeof(int32_t));
        });
      });
      Unroll<W::kSteps>([&](auto j) SLUICE_LAMBDA {
        // The tokens' four columns lie side by side; those of 16 bits in two halves.
        constexpr size_t kHalves = Dot::kXBytes;
        constexpr size_t kStep = i * W::kSteps + j;
        constexpr size_t kValuesAt =
            kStep / kHalves * kT * kTileK * kHalves + kStep % kHalves * kTileK;
        VU8 part[kC];
        Unroll<kC>([&](auto c) SLUICE_LAMBDA {
          part[c] = W::Step(line[c], j);
          if constexpr (W::kUnpacks) {
            hn::Store(part[c], ByteTag(),
                      at.panel + kStep * kS * kLineBytes + c * kLanes * sizeof(int32_t));
          }
        });
        Unroll<kT>([&](auto t) SLUICE_LAMBDA {
          const auto x = Dot::template Four<kStep>(at.values + kValuesAt + t * kTileK * kHalves);
          Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = Dot::Add(sum[t][c], part[c], x); });
        });
      });
    });
    if constexpr (W::kFromMemory) {
      if (ahead != nullptr) ahead->template Ask<kAskedLines>();
      // (Without, GCC read sums of the output early, and spilled others for them.)
      CompilerBarrier();
    } else {
      ahead->template Ask<4>();
    }
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      if constexpr (Dot::kCarries) sum[t][c] = Dot::Carry(sum[t][c]);
      Dot::Pin(sum[t][c]);
    });
  }

  // Adds 32 columns, two lines at once.
  static HWY_INLINE void AddTwoByTwo(const Cursor& at, Sums& sum) {
    const uint8_t* lines[kS];
    Unroll<kS>([&](auto s) SLUICE_LAMBDA { lines[s] = at.weights[s]; });
    const int8_t* values = at.values;
    Unroll<kActivationBlock / W::kLineK / 2>([&](auto i) SLUICE_LAMBDA {
      using X = decltype(Dot::template Four<2 * i>(values));
      using NextX = decltype(Dot::template Four<2 * i + 1>(values));
      X x[kT];
      NextX next_x[kT];
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const int8_t* from = values + (2 * i * kT + t) * kTileK;
        x[t] = Dot::template Four<2 * i>(from);
        next_x[t] = Dot::template Four<2 * i + 1>(from + kT * kTileK);
      });
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        const uint8_t* line = lines[c / kVectors] + 2 * i * kLineStride;
        if (W::kFromMemory && c % kVectors == 0) PrefetchLine(line + kTilePrefetchBytes);
        if (W::kFromMemory && c % kVectors == 0)
          PrefetchLine(line + kLineStride + kTilePrefetchBytes);
        line += c % kVectors * kLanes * sizeof(int32_t);
        const VU8 w = W::Load(line);
        const VU8 next_w = W::Load(line + kLineStride);
        // Tokens take turns: of one, each instruction would wait for the one before.
        typename Dot::Words words[kT];
        Unroll<kT>([&](auto t) SLUICE_LAMBDA { words[t] = Dot::Multiply(w, x[t]); });
        Unroll<kT>([&](auto t)
                       SLUICE_LAMBDA { words[t] = Dot::MultiplyAdd(words[t], next_w, next_x[t]); });
        Unroll<kT>([&](auto t) SLUICE_LAMBDA { sum[t][c] = Dot::Collect(sum[t][c], words[t]); });
        if constexpr (c % 2 == 1) Dot::ReadAfterSum(sum[kT - 1][c], lines[c / kVectors]);
      });
      Dot::ReadAfterSum(sum[kT - 1][kC - 1], values);
    });
  }

  // The start value of token t's sums over `blocks` blocks of 32.
  static HWY_INLINE VI Start(const Cursor& at, size_t t, size_t blocks) {
    VI start = hn::Set(LaneTag(), at.template At<int32_t>(kOffsetsAt, t));
    for (size_t b = 1; b < blocks; ++b) {
      start =
          hn::Add(start, hn::Set(LaneTag(), at.template At<int32_t>(b * kXBytes + kOffsetsAt, t)));
    }
    static_assert(Dot::kStart == 0 || Dot::kStart == 1 || Dot::kStart == 16);
    return Dot::kStart == 16 ? hn::ShiftLeft<4>(start) : start;
  }

  template <bool kBlocksOf32>
  static HWY_INLINE void Blocked(const TileStrips<kS>& strips, const TileTokens& args) {
    const FloatTag df;
    const PackedLayout& layout = strips.layout;
    const size_t shift = static_cast<size_t>(std::countr_zero(layout.block()));
    const size_t blocks = kBlocksOf32 ? 1 : layout.block() / kActivationBlock;
    const size_t end = HWY_MIN(strips.end, layout.cols);
    float* out = args.out;
    if (strips.first()) {
      UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
        hn::Store(hn::Zero(df), df, out + t * kDotStride + c * kLanes);
      });
    }
    Cursor at(strips, args);
    Cursor block = at;
    size_t k = strips.begin;
    do {
      Sums sum;
      // Sums that carry take their start value at the end: it would hold a register of each.
      constexpr bool kStartsFirst = Dot::kStart != 0 && !Dot::kCarries;
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VI start = kStartsFirst ? Start(at, t, blocks) : hn::Zero(LaneTag());
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = Dot::Begin(start); });
      });
      block = at;
      Add32(at, strips.ahead, sum);
      at.Advance();
      if constexpr (!kBlocksOf32) {
        for (size_t b = 1; b < blocks; ++b, at.Advance()) Add32(at, strips.ahead, sum);
      }
      Fold(strips, block, k >> shift, blocks, sum, out);
      k += blocks * kActivationBlock;
      OpaquePointer(out);
    } while (k < end);
    if (strips.last()) Finish(strips, args);
  }

  // out = fma(float(s), scale, out).
  static HWY_INLINE void Fold(const TileStrips<kS>& strips, const Cursor& block,
                              size_t weight_block, size_t blocks, const Sums& sum, float* out) {
    const FloatTag df;
    Unroll<kC>([&](auto c) SLUICE_LAMBDA {
      VF w_scale = hn::Zero(df);
      if constexpr (WeightsBlocked(kMode)) {
        w_scale = LoadScales<true>(strips.scales[c / kVectors], weight_block, c % kVectors);
      }
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        VF x_scale = hn::Zero(df);
        if constexpr (XBlocked(kMode)) {
          x_scale = hn::Set(df, block.template At<float>(kScalesAt, t));
        }
        VI s = Dot::End(sum[t][c]);
        if constexpr (Dot::kStart != 0 && Dot::kCarries) s = hn::Add(s, Start(block, t, blocks));
        float* to = out + t * kDotStride + c * kLanes;
        hn::Store(
            hn::MulAdd(hn::ConvertTo(df, s), BlockScale<kMode>(w_scale, x_scale), hn::Load(df, to)),
            df, to);
      });
    });
  }

  // Integer sums of all columns; between panels they lie in the output, as bits.
  static HWY_INLINE void Constant(const TileStrips<kS>& strips, const TileTokens& args) {
    const FloatTag df;
    if (strips.first()) {
      for (size_t t = 0; t < kT; ++t) {
        const VI start = hn::Set(LaneTag(), Dot::kStart * args.total_offsets[t]);
        for (size_t c = 0; c < kC; ++c) {
          hn::Store(hn::BitCast(df, start), df, args.out + t * kDotStride + c * kLanes);
        }
      }
    }
    Sums sum;
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      sum[t][c] =
          Dot::Begin(hn::BitCast(LaneTag(), hn::Load(df, args.out + t * kDotStride + c * kLanes)));
    });
    Cursor at(strips, args);
    size_t k = strips.begin;
    do {
      Add32(at, strips.ahead, sum);
      at.Advance();
      k += kActivationBlock;
    } while (k < strips.end);
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      hn::Store(hn::BitCast(df, Dot::End(sum[t][c])), df, args.out + t * kDotStride + c * kLanes);
    });
    if (strips.last()) Finish(strips, args);
  }

  // Applies the scales that are constant along K.
  static HWY_INLINE void Finish(const TileStrips<kS>& strips, const TileTokens& args) {
    if constexpr (kMode == Mode::kBothBlocked) return;
    const FloatTag df;
    for (size_t t = 0; t < kT; ++t) {
      for (size_t c = 0; c < kC; ++c) {
        float* y = args.out + t * kDotStride + c * kLanes;
        VF sum = hn::Load(df, y);
        if constexpr (kMode == Mode::kBothConstant) {
          sum = hn::ConvertTo(df, hn::BitCast(LaneTag(), sum));
        }
        hn::Store(ApplyConstantScales<kMode>(sum, strips.scales[c / kVectors], c % kVectors,
                                             args.x_scales + t * args.x_scale_stride),
                  df, y);
      }
    }
  }
};

// The lowest tile that `from` tokens or more are cut into, with tiles of at most kT.
template <size_t kT>
consteval size_t LowestTile(size_t from) {
  size_t lowest = kT;
  for (size_t tokens = from; tokens < from + kT * kT; ++tokens) {
    lowest = HWY_MIN(lowest, tokens / DivCeil(tokens, kT));
  }
  return lowest;
}

// A tile of a number of tokens known at run time, kLowest … kT. `Tile` is TokenTile or one like it.
template <template <class, Mode, size_t, size_t> class Tile, class W, Mode kMode, size_t kT,
          size_t kS, size_t kLowest>
HWY_INLINE void RunTokenTile(size_t tokens, const TileStrips<kS>& strips, const TileTokens& tile) {
  if constexpr (kT > kLowest) {
    if (tokens != kT) {
      return RunTokenTile<Tile, W, kMode, kT - 1, kS, kLowest>(tokens, strips, tile);
    }
  }
  Tile<W, kMode, kT, kS>::Run(strips, tile);
}

// The values of a tile's `blocks` blocks in 16 bits.
HWY_INLINE void WidenTile(const std::byte* x, size_t tokens, size_t blocks, int16_t* to) {
  const hn::CappedTag<int16_t, kTileK * 2> d;
  const hn::Rebind<int8_t, decltype(d)> bytes;
  for (size_t b = 0; b < blocks; ++b, x += TileBlockBytes(tokens)) {
    const auto* from = reinterpret_cast<const int8_t*>(x);
    for (size_t i = 0; i < tokens * kActivationBlock; i += hn::Lanes(d), to += hn::Lanes(d)) {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(bytes, from + i)), d, to);
    }
  }
}

// The call's tiles [first_tile, last_tile), of kLowest to kT tokens, times strips of at most kCols
// columns that begin at strip `strip` of the call.
template <template <class, Mode, size_t, size_t> class Tile, class W, Mode kMode, size_t kT,
          size_t kS, size_t kLowest, size_t kCols>
void RunTokenTiles(const DotArgs& args, size_t strip, const TileStrips<kS>& strips,
                   size_t first_tile = 0, size_t last_tile = kMaxDotTokens) {
  constexpr bool kWide = W::Dot::kXBytes == 2;
  alignas(kAlignment) int16_t wide[kWide ? kT * kCols : 1];
  const ActivationRows& x = *args.x;
  const ActivationTiles& tiles = *args.tiles;
  const TokenTiles cut(tiles.tokens, tiles.height);
  const size_t end = args.first_token + args.tokens;
  const size_t call_tile = cut.IndexOf(args.first_token);
  size_t token = cut.Begin(call_tile + first_tile);
  for (size_t tile = call_tile + first_tile; token < end && tile < call_tile + last_tile; ++tile) {
    const size_t count = cut.Begin(tile + 1) - token;
    const std::byte* x_tile = tiles.data + token * tiles.blocks * TileBlockBytes(1) +
                              strips.begin / kActivationBlock * TileBlockBytes(count);
    if constexpr (kWide) {
      WidenTile(x_tile, count, (strips.end - strips.begin) / kActivationBlock, wide);
    }
    RunTokenTile<Tile, W, kMode, kT, kS, kLowest>(
        count, strips,
        {.x = x_tile,
         .wide_x = reinterpret_cast<const int8_t*>(wide),
         .x_scales = x.scales + token * x.scale_stride,
         .x_scale_stride = x.scale_stride,
         .total_offsets = x.total_offset + token,
         .out = args.out + (token - args.first_token) * kDotStride + strip * kStripRows});
    token += count;
  }
}

// All columns of kS strips from `strip` on, from the packed weights.
template <class W, Mode kMode, size_t kT, size_t kS, size_t kLowest>
void RunPackedStrips(const DotArgs& args, size_t strip) {
  TileStrips<kS> strips;
  strips.layout = args.layout;
  strips.begin = 0;
  strips.end = args.layout.padded_cols();
  for (size_t s = 0; s < kS; ++s) {
    strips.weights[s] = reinterpret_cast<const uint8_t*>(args.weights[strip + s]);
    strips.scales[s] = args.scales[strip + s];
  }
  // One tile reads its weights once, as fast as they come. Of more, all but the first find them in
  // a cache, and memory would idle.
  const size_t tiles = DivCeil(args.tokens, args.tiles->height);
  Ahead<kS> ahead;
  strips.ahead = nullptr;
  if (tiles > 1) {
    ahead = NextStrips<kS>(args, strip, strips, tiles * strips.end / kActivationBlock);
    strips.ahead = &ahead;
  }
  RunTokenTiles<TokenTile, W, kMode, kT, kS, kLowest, 1>(args, strip, strips);
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_TOKEN_TILE_INL_H_
