// The dot kernel for many tokens: weights are unpacked once, for all of them, into a panel that
// stays in the first-level cache; register tiles of tokens then run over it.
//
// A panel holds the strips of one register tile over kPanelCols columns, each byte as the dot
// product takes it: for 4 columns one line of 64 bytes of each strip, side by side. Activations
// come in tiles too (ActivationTiles), so that a register tile walks two streams of memory and a
// few scales.
//
// All registers go to the integer sums: VPDPBUSD takes 5 to 6 cycles and two start in each, so
// that twelve sums side by side leave no slack, and any hiccup is lost time. Float sums are used
// once in a block and live in the output, which the first-level cache holds. Tiles go on from panel
// to panel with their sums there, in the same order along K as a tile that takes all columns at
// once, so the results are the same bits.
#ifndef SLUICE_SRC_KERNELS_PANEL_INL_H_
#define SLUICE_SRC_KERNELS_PANEL_INL_H_

#include "src/kernels/activation_tiles.h"
#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Weights as a panel holds them: one byte each, or 16 bits.
template <class Packed>
struct PanelWeights {
  using Dot = std::conditional_t<std::is_same_v<Packed, Int8Weights>, PanelByteDot, NibbleDot>;
  static constexpr bool kWide = Dot::kXBytes == 2;
  static constexpr size_t kLineK = kTileK / Dot::kXBytes;  // columns of a line
};

// Columns of a panel, a whole number of the largest blocks: up to 24 KiB, of a first-level cache of
// 32 or 48.
template <class Packed, size_t kS>
inline constexpr size_t kPanelCols =
    HWY_MIN(size_t{PanelWeights<Packed>::kWide ? 256 : 640},
            (size_t{24} << 10) / (kS * kLineBytes) * PanelWeights<Packed>::kLineK) /
    kMaxBlock * kMaxBlock;

// Columns [begin, end) of a panel, whole blocks.
struct PanelRange {
  size_t begin = 0;
  size_t end = 0;
  bool first = true;
  bool last = true;
};

// A line of int8 weights as two lines of 16 bits, each two columns of 16 rows.
HWY_INLINE void StorePairs(VU8 line, uint8_t* low, uint8_t* high) {
  const hn::Repartition<int16_t, LaneTag> words;
  const hn::Repartition<int32_t, LaneTag> lanes;
  const auto four = hn::BitCast(lanes, line);
  // A lane holds k0 k1 k2 k3, from the low byte on; sign extension is a shift there and back.
  const auto spread =
      [&](auto two) SLUICE_LAMBDA {  // bytes 0 and 1 to the tops of the 16-bit halves
        const auto k0 = hn::And(hn::ShiftLeft<8>(two), hn::Set(lanes, 0x0000FF00));
        const auto k1 = hn::ShiftLeft<16>(hn::And(two, hn::Set(lanes, 0x0000FF00)));
        return hn::ShiftRight<8>(hn::BitCast(words, hn::Or(k0, k1)));
      };
  hn::Store(hn::BitCast(ByteTag(), spread(four)), ByteTag(), low);
  hn::Store(hn::BitCast(ByteTag(), spread(hn::ShiftRight<16>(four))), ByteTag(), high);
}

// Columns [begin, end) of a strip, to every kS-th line of the panel.
template <class Packed, size_t kS>
HWY_INLINE void UnpackStrip(const std::byte* strip, size_t begin, size_t end, uint8_t* panel) {
  const auto* from = reinterpret_cast<const uint8_t*>(strip) + begin / Packed::kLineK * kLineBytes;
  constexpr size_t kVectorBytes = kLanes * sizeof(int32_t);
  constexpr size_t kStep = kS * kLineBytes;
  for (size_t k = begin; k < end; k += Packed::kLineK, from += kLineBytes) {
    Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
      const VU8 line = Packed::Load(from + v * kVectorBytes);
      uint8_t* to = panel + v * kVectorBytes;
      if constexpr (PanelWeights<Packed>::kWide) {
        StorePairs(line, to, to + kStep);
      } else {
        Unroll<Packed::kSteps>([&](auto step) SLUICE_LAMBDA {
          hn::Store(Packed::Step(line, step), ByteTag(), to + step * kStep);
        });
      }
    });
    panel += Packed::kLineK / PanelWeights<Packed>::kLineK * kStep;
  }
}

// Asks memory, into the second-level cache, for what the next call will read: a kernel of many
// tokens dwells on its weights, and memory would idle meanwhile. A tile asks in every 32 columns
// for four lines of one strip and goes on by `step` bytes, so that requests spread over all of its
// work. (Asked for all at once, the lines fill the line buffers, and the tiles wait behind them.)
template <size_t kS>
struct Ahead {
  const std::byte* at[kS];
  size_t step = 0;
  size_t turn = 0;
  HWY_INLINE void Ask() {
    const std::byte* line = at[turn % kS];
    at[turn++ % kS] = line + step;
    for (size_t i = 0; i < 4; ++i) __builtin_prefetch(line + i * kLineBytes, 0, 2);
  }
};

// For the panel's strips and columns, asked for `asks` times. Where the next call is unknown, lines
// of this strip again, which cost nothing.
template <size_t kS>
HWY_INLINE Ahead<kS> NextStrips(const DotArgs& args, size_t strip, const PanelRange& range,
                                size_t asks) {
  const PackedLayout& layout = args.layout;
  const size_t bits = kStripRows * layout.weight_bits();
  Ahead<kS> ahead;
  for (size_t s = 0; s < kS; ++s) {
    ahead.at[s] = args.weights[strip + s];
    if (args.next_weights[strip + s] == nullptr) continue;
    ahead.at[s] = args.next_weights[strip + s] + range.begin * bits / 8;
    ahead.step = DivCeil((range.end - range.begin) * bits / 8, HWY_MAX(asks / kS, size_t{1}));
    // Scales are few: they are asked for at once.
    if (!layout.format.blocked()) continue;
    const size_t scale_bytes = kStripRows * layout.scale_bytes_each();
    const std::byte* end = args.next_scales[strip + s] + range.end / layout.block() * scale_bytes;
    const std::byte* at = args.next_scales[strip + s] + range.begin / layout.block() * scale_bytes;
    for (; at < end; at += kLineBytes) __builtin_prefetch(at, 0, 2);
  }
  return ahead;
}

// A panel and what its tiles share.
template <size_t kS>
struct Panel {
  PackedLayout layout;
  PanelRange range;
  const uint8_t* weights;
  const std::byte* scales[kS];  // of the strips
  Ahead<kS>* ahead;
};

// What is a tile's own.
struct PanelTileArgs {
  const std::byte* x;     // its block of the range's first columns
  const int8_t* wide_x;   // its values in 16 bits, from there on; of a wide panel
  const float* x_scales;  // of a row each, with `x_scale_stride`; ActivationFormat::kRow
  size_t x_scale_stride;
  const int32_t* total_offsets;
  float* out;
};

// kT tokens times a panel of kS strips.
template <class Packed, Mode kMode, size_t kT, size_t kS>
class PanelTile {
 public:
  static HWY_NOINLINE void Run(const Panel<kS>& panel, const PanelTileArgs& args) {
    if constexpr (kMode == Mode::kBothConstant) {
      Constant(panel, args);
    } else if (kXBlocked<kMode> || panel.layout.block() == kActivationBlock) {
      Blocked<true>(panel, args);  // the most common, without the loops that longer blocks take
    } else {
      Blocked<false>(panel, args);
    }
  }

 private:
  using Weights = PanelWeights<Packed>;
  using Dot = typename Weights::Dot;
  static constexpr size_t kC = kS * kVectors;
  using Sums = typename Dot::Sum[kT][kC];
  static constexpr size_t kXBytes = TileBlockBytes(kT);
  static constexpr size_t kWideBytes = kT * kActivationBlock * sizeof(int16_t);
  static constexpr size_t kScalesAt = kT * kActivationBlock;
  static constexpr size_t kOffsetsAt = kScalesAt + kT * sizeof(float);
  static constexpr size_t kPanelBytes = kActivationBlock / Weights::kLineK * kS * kLineBytes;

  // Where the tile is along K.
  struct Cursor {
    const uint8_t* weights;
    const std::byte* x;
    const int8_t* values;

    explicit HWY_INLINE Cursor(const Panel<kS>& panel, const PanelTileArgs& args)
        : weights(panel.weights),
          x(args.x),
          values(Weights::kWide ? args.wide_x : reinterpret_cast<const int8_t*>(args.x)) {}
    HWY_INLINE void Advance() {
      weights += kPanelBytes;
      x += kXBytes;
      values += Weights::kWide ? kWideBytes : kXBytes;
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
    constexpr size_t kVectorBytes = kLanes * sizeof(int32_t);
    Unroll<kActivationBlock / Weights::kLineK>([&](auto step) SLUICE_LAMBDA {
      // The tokens' four columns lie side by side; those of 16 bits in two halves.
      constexpr size_t kHalves = Dot::kXBytes;
      constexpr size_t kValuesAt = step / kHalves * kT * kTileK * kHalves + step % kHalves * kTileK;
      VU8 w[kC];
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        w[c] = hn::Load(ByteTag(), at.weights + step * kS * kLineBytes + c * kVectorBytes);
      });
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VI x = BroadcastFour(at.values + kValuesAt + t * kTileK * kHalves);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = Dot::Add(sum[t][c], w[c], x); });
      });
    });
    ahead->Ask();
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      if constexpr (Dot::kCarries) sum[t][c] = Dot::Carry(sum[t][c]);
      Dot::Pin(sum[t][c]);
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
  static HWY_INLINE void Blocked(const Panel<kS>& panel, const PanelTileArgs& args) {
    const FloatTag df;
    const PackedLayout& layout = panel.layout;
    const size_t shift = static_cast<size_t>(std::countr_zero(layout.block()));
    const size_t blocks = kBlocksOf32 ? 1 : layout.block() / kActivationBlock;
    const size_t end = HWY_MIN(panel.range.end, layout.cols);
    float* out = args.out;
    if (panel.range.first) {
      UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
        hn::Store(hn::Zero(df), df, out + t * kDotStride + c * kLanes);
      });
    }
    Cursor at(panel, args);
    Cursor block = at;
    size_t k = panel.range.begin;
    do {
      Sums sum;
      // Sums that carry take their start value at the end: it would hold a register of each.
      constexpr bool kStartsFirst = Dot::kStart != 0 && !Dot::kCarries;
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VI start = kStartsFirst ? Start(at, t, blocks) : hn::Zero(LaneTag());
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = Dot::Begin(start); });
      });
      block = at;
      Add32(at, panel.ahead, sum);
      at.Advance();
      if constexpr (!kBlocksOf32) {
        for (size_t b = 1; b < blocks; ++b, at.Advance()) Add32(at, panel.ahead, sum);
      }
      Fold(panel, block, k >> shift, blocks, sum, out);
      k += blocks * kActivationBlock;
      OpaquePointer(out);
    } while (k < end);
    if (panel.range.last) Finish(panel, args);
  }

  // out = fma(float(s), scale, out).
  static HWY_INLINE void Fold(const Panel<kS>& panel, const Cursor& block, size_t weight_block,
                              size_t blocks, const Sums& sum, float* out) {
    const FloatTag df;
    Unroll<kC>([&](auto c) SLUICE_LAMBDA {
      VF w_scale = hn::Zero(df);
      if constexpr (kWeightsBlocked<kMode>) {
        w_scale = LoadScales<true>(panel.scales[c / kVectors], weight_block, c % kVectors);
      }
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        VF x_scale = hn::Zero(df);
        if constexpr (kXBlocked<kMode>) {
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
  static HWY_INLINE void Constant(const Panel<kS>& panel, const PanelTileArgs& args) {
    const FloatTag df;
    if (panel.range.first) {
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
    Cursor at(panel, args);
    size_t k = panel.range.begin;
    do {
      Add32(at, panel.ahead, sum);
      at.Advance();
      k += kActivationBlock;
    } while (k < panel.range.end);
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      hn::Store(hn::BitCast(df, Dot::End(sum[t][c])), df, args.out + t * kDotStride + c * kLanes);
    });
    if (panel.range.last) Finish(panel, args);
  }

  // Applies the scales that are constant along K.
  static HWY_INLINE void Finish(const Panel<kS>& panel, const PanelTileArgs& args) {
    if constexpr (kMode == Mode::kBothBlocked) return;
    const FloatTag df;
    for (size_t t = 0; t < kT; ++t) {
      for (size_t c = 0; c < kC; ++c) {
        float* y = args.out + t * kDotStride + c * kLanes;
        VF sum = hn::Load(df, y);
        if constexpr (kMode == Mode::kBothConstant) {
          sum = hn::ConvertTo(df, hn::BitCast(LaneTag(), sum));
        }
        hn::Store(ApplyConstantScales<kMode>(sum, panel.scales[c / kVectors], c % kVectors,
                                             args.x_scales + t * args.x_scale_stride),
                  df, y);
      }
    }
  }
};

// The lowest of the tiles that kBatchTokens tokens or more are cut into, of kT at most.
template <size_t kT>
consteval size_t LowestTile() {
  size_t lowest = kT;
  for (size_t tokens = kBatchTokens; tokens < kBatchTokens + kT * kT; ++tokens) {
    lowest = HWY_MIN(lowest, tokens / DivCeil(tokens, kT));
  }
  return lowest;
}

// PanelTile for a number of tokens known at run time, kLowest … kT.
template <class Packed, Mode kMode, size_t kT, size_t kS, size_t kLowest>
HWY_INLINE void RunPanelTile(size_t tokens, const Panel<kS>& panel, const PanelTileArgs& args) {
  if constexpr (kT > kLowest) {
    if (tokens != kT) {
      return RunPanelTile<Packed, kMode, kT - 1, kS, kLowest>(tokens, panel, args);
    }
  }
  PanelTile<Packed, kMode, kT, kS>::Run(panel, args);
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

// kS strips from `strip` on, all tokens of the call, in tiles of at most kT.
template <class Packed, Mode kMode, size_t kT, size_t kS>
void RunPanels(const DotArgs& args, size_t strip) {
  constexpr size_t kCols = kPanelCols<Packed, kS>;
  constexpr bool kWide = PanelWeights<Packed>::kWide;
  alignas(kAlignment) uint8_t weights[kCols / PanelWeights<Packed>::kLineK * kS * kLineBytes];
  alignas(kAlignment) int16_t wide[kWide ? kT * kCols : 1];
  const PackedLayout& layout = args.layout;
  const ActivationRows& x = *args.x;
  const TokenTiles tiles(args.tiles->tokens, args.tiles->height);
  const size_t first_tile = tiles.IndexOf(args.first_token);
  const size_t last_tile = tiles.IndexOf(args.first_token + args.tokens);
  for (size_t begin = 0; begin < layout.padded_cols(); begin += kCols) {
    const size_t end = HWY_MIN(begin + kCols, layout.padded_cols());
    Panel<kS> panel = {
        layout, {begin, end, begin == 0, end == layout.padded_cols()}, weights, {}, {}};
    for (size_t s = 0; s < kS; ++s) {
      UnpackStrip<Packed, kS>(args.weights[strip + s], begin, end, weights + s * kLineBytes);
      panel.scales[s] = args.scales[strip + s];
    }
    const size_t blocks = (end - begin) / kActivationBlock;
    Ahead<kS> ahead = NextStrips<kS>(args, strip, panel.range, (last_tile - first_tile) * blocks);
    panel.ahead = &ahead;
    for (size_t tile = first_tile; tile < last_tile; ++tile) {
      const size_t token = tiles.Begin(tile);
      const size_t count = tiles.Begin(tile + 1) - token;
      const std::byte* x_tile = args.tiles->data + token * args.tiles->blocks * TileBlockBytes(1) +
                                begin / kActivationBlock * TileBlockBytes(count);
      if constexpr (kWide) WidenTile(x_tile, count, blocks, wide);
      RunPanelTile<Packed, kMode, kT, kS, LowestTile<kT>()>(
          count, panel,
          {.x = x_tile,
           .wide_x = reinterpret_cast<const int8_t*>(wide),
           .x_scales = x.scales + token * x.scale_stride,
           .x_scale_stride = x.scale_stride,
           .total_offsets = x.total_offset + token,
           .out = args.out + (token - args.first_token) * kDotStride + strip * kStripRows});
    }
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_PANEL_INL_H_
