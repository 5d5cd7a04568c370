// The dot kernel for many tokens: weights are unpacked once, for all of them, into a panel that
// stays in the first-level cache; register tiles of tokens then run over it.
//
// A panel holds the strips of one register tile over PanelShape::kCols columns, each byte as the
// dot product takes it: one line of 64 bytes for 4 columns. Tiles go on from panel to panel with
// their sums in the output, in the same order along K as a tile that takes all columns at once, so
// the results are the same bits.
#ifndef SLUICE_SRC_KERNELS_PANEL_INL_H_
#define SLUICE_SRC_KERNELS_PANEL_INL_H_

#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Fewer tokens than this read the packed weights directly.
inline constexpr size_t kPanelTokens = 8;

// A panel of 16 bits.
template <class Packed>
inline constexpr bool kWide = PanelWeights<Packed>::Dot::kXBytes == 2;

template <class Packed>
struct PanelShape {
  using Weights = PanelWeights<Packed>;
  // A whole number of the largest blocks. Two strips of bytes are 20 KiB, of a first-level cache of
  // 32 or 48.
  static constexpr size_t kCols = 5 * kMaxBlock / Weights::Dot::kXBytes / kMaxBlock * kMaxBlock;
  static constexpr size_t kStripBytes = kCols / Weights::kLineK * kLineBytes;
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

template <class Packed>
HWY_INLINE void UnpackStrip(const std::byte* strip, size_t begin, size_t end, uint8_t* panel) {
  const auto* from = reinterpret_cast<const uint8_t*>(strip) + begin / Packed::kLineK * kLineBytes;
  constexpr size_t kVectorBytes = kLanes * sizeof(int32_t);
  for (size_t k = begin; k < end; k += Packed::kLineK, from += kLineBytes) {
    Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
      const VU8 line = Packed::Load(from + v * kVectorBytes);
      uint8_t* to = panel + v * kVectorBytes;
      if constexpr (kWide<Packed>) {
        StorePairs(line, to, to + kLineBytes);
      } else {
        Unroll<Packed::kSteps>([&](auto step) SLUICE_LAMBDA {
          hn::Store(Packed::Step(line, step), ByteTag(), to + step * kLineBytes);
        });
      }
    });
    panel += Packed::kLineK / PanelWeights<Packed>::kLineK * kLineBytes;
  }
}

// What the next call will read of the panel's strips and columns, asked for `asks` times. Where
// that is unknown, a line of this strip again, which costs nothing.
template <size_t kS>
HWY_INLINE Ahead<kS> NextStrips(const DotArgs& args, size_t strip, const TileRange& range,
                                size_t asks) {
  const PackedLayout& layout = args.layout;
  const size_t bits = kStripRows * layout.weight_bits();
  Ahead<kS> ahead;
  ahead.step = 0;
  for (size_t s = 0; s < kS; ++s) {
    ahead.at[s] = args.weights[strip + s];
    if (args.next_weights[strip + s] == nullptr) continue;
    ahead.at[s] = args.next_weights[strip + s] + range.begin * bits / 8;
    ahead.step = DivCeil((range.end - range.begin) * bits / 8, asks);
    // Scales are few: they are asked for at once.
    if (!layout.format.blocked()) continue;
    const size_t scale_bytes = kStripRows * layout.scale_bytes_each();
    const std::byte* end = args.next_scales[strip + s] + range.end / layout.block() * scale_bytes;
    const std::byte* at = args.next_scales[strip + s] + range.begin / layout.block() * scale_bytes;
    for (; at < end; at += kLineBytes) __builtin_prefetch(at, 0, 2);
  }
  return ahead;
}

template <size_t kS>
struct Panel {
  const uint8_t* weights;
  const int16_t* x;  // [tokens, kCols], of a panel of 16 bits
  Ahead<kS>* ahead;
};

// kT tokens from `token` on, times the panel.
template <class Packed, Mode kMode, size_t kT, size_t kS>
HWY_NOINLINE void PanelTile(const DotArgs& args, const Panel<kS>& panel, const TileRange& range,
                            size_t strip, size_t token) {
  TilePointers<kT, kS> p = PointersOf<kT, kS>(args, strip, token);
  p.weights_begin = range.begin;
  p.ahead = panel.ahead;
  Unroll<kS>([&](auto s) SLUICE_LAMBDA {
    p.weights[s] = panel.weights + s * PanelShape<Packed>::kStripBytes;
  });
  if constexpr (kWide<Packed>) {
    p.x_begin = range.begin;
    Unroll<kT>([&](auto t) SLUICE_LAMBDA {
      p.x[t] = reinterpret_cast<const int8_t*>(panel.x + (token + t) * PanelShape<Packed>::kCols);
    });
  }
  Tile<PanelWeights<Packed>, kMode, kT, kS>::Compute(
      p, args.layout, range, args.out + token * args.out_stride + strip * kStripRows,
      args.out_stride);
}

// The lowest tile that RunPanels cuts kPanelTokens or more into, with tiles of at most kT.
template <size_t kT>
consteval size_t LowestTile() {
  size_t lowest = kT;
  for (size_t tokens = kPanelTokens; tokens < kPanelTokens + kT * kT; ++tokens) {
    lowest = HWY_MIN(lowest, tokens / DivCeil(tokens, kT));
  }
  return lowest;
}

// The same for a number of tokens known at run time, kLowest … kT.
template <class Packed, Mode kMode, size_t kT, size_t kS, size_t kLowest>
HWY_INLINE void PanelTileOf(size_t tokens, const DotArgs& args, const Panel<kS>& panel,
                            const TileRange& range, size_t strip, size_t token) {
  if constexpr (kT > kLowest) {
    if (tokens != kT) {
      return PanelTileOf<Packed, kMode, kT - 1, kS, kLowest>(tokens, args, panel, range, strip,
                                                             token);
    }
  }
  PanelTile<Packed, kMode, kT, kS>(args, panel, range, strip, token);
}

// Activations [begin, end) of all tokens in 16 bits.
template <size_t kCols>
HWY_INLINE void WidenActivations(const DotArgs& args, const TileRange& range, int16_t* to) {
  const hn::CappedTag<int16_t, kActivationBlock> d;
  const hn::Rebind<int8_t, decltype(d)> bytes;
  const int8_t* row = args.x->values + args.first_token * args.x->value_stride;
  for (size_t t = 0; t < args.tokens; ++t, row += args.x->value_stride, to += kCols) {
    for (size_t k = range.begin; k < range.end; k += hn::Lanes(d)) {
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(bytes, row + k)), d, to + (k - range.begin));
    }
  }
}

// kS strips from `strip` on, all tokens, in tiles of at most kT: as many as there must be, all of
// the same height or one less.
template <class Packed, Mode kMode, size_t kT, size_t kS>
void RunPanels(const DotArgs& args, size_t strip) {
  using Shape = PanelShape<Packed>;
  alignas(kAlignment) uint8_t weights[kS * Shape::kStripBytes];
  alignas(kAlignment) int16_t x[kWide<Packed> ? kMaxDotTokens * Shape::kCols : 1];
  const PackedLayout& layout = args.layout;
  const size_t tiles = DivCeil(args.tokens, kT);
  for (size_t begin = 0; begin < layout.padded_cols(); begin += Shape::kCols) {
    const size_t end = HWY_MIN(begin + Shape::kCols, layout.padded_cols());
    const TileRange range = {begin, end, begin == 0, end == layout.padded_cols()};
    for (size_t s = 0; s < kS; ++s) {
      UnpackStrip<Packed>(args.weights[strip + s], begin, end, weights + s * Shape::kStripBytes);
    }
    if constexpr (kWide<Packed>) WidenActivations<Shape::kCols>(args, range, x);
    Ahead<kS> ahead = NextStrips<kS>(args, strip, range, tiles * (end - begin) / kActivationBlock);
    const Panel<kS> panel = {weights, x, &ahead};
    for (size_t tile = 0, token = 0; tile < tiles; ++tile) {
      const size_t count = DivCeil(args.tokens - token, tiles - tile);
      PanelTileOf<Packed, kMode, kT, kS, LowestTile<kT>()>(count, args, panel, range, strip, token);
      token += count;
    }
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_PANEL_INL_H_
