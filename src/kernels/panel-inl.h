// The dot kernel for many tokens: weights are unpacked once, for all of them, into a panel that
// stays in the first-level cache, and tiles of tokens run over it. Where a tile's stores cost it
// nothing, the first tile unpacks as it goes.
//
// A panel holds the strips of one register tile over kPanelCols columns, each byte as the dot
// product takes it: for 4 columns one line of 64 bytes of each strip, side by side.
#ifndef SLUICE_SRC_KERNELS_PANEL_INL_H_
#define SLUICE_SRC_KERNELS_PANEL_INL_H_

#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"
#include "src/kernels/token_tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Weights as a panel holds them: one byte each, or 16 bits.
template <class Packed>
struct PanelWeights {
  using Dot = std::conditional_t<std::is_same_v<Packed, Int8Weights>, PanelByteDot, NibbleDot>;
  static constexpr bool kFromMemory = false;
  static constexpr bool kUnpacks = false;
  static constexpr bool kWide = Dot::kXBytes == 2;
  static constexpr size_t kLineK = kTileK / Dot::kXBytes;  // columns of a line
  static constexpr size_t kSteps = 1;
  static HWY_INLINE VU8 Load(const uint8_t* p) { return hn::Load(ByteTag(), p); }
  static HWY_INLINE VU8 Step(VU8 line, size_t) { return line; }
};

// Packed weights that a tile leaves in a panel.
template <class Packed>
struct UnpackingWeights : Packed {
  static constexpr bool kUnpacks = true;
};

// A tile may unpack: its sums are plain, and the ports that store are idle while it multiplies.
template <class Packed>
inline constexpr bool kFirstTileUnpacks = kOneInstruction && !PanelWeights<Packed>::kWide;

// Columns of a panel, a whole number of the largest blocks: up to 24 KiB, of a first-level cache of
// 32 or 48.
template <class Packed, size_t kS>
inline constexpr size_t kPanelCols =
    HWY_MIN(size_t{PanelWeights<Packed>::kWide ? 256 : 640},
            (size_t{24} << 10) / (kS * kLineBytes) * PanelWeights<Packed>::kLineK) /
    kMaxBlock * kMaxBlock;

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

// Fewer tokens than this are not worth a panel. Where the first tile unpacks, a second one is. Else
// tiles read the packed weights in place and unpack them in registers, once for each tile: a panel
// is written, and evicted, at 4 to 5 cycles a line, an unpacking takes 3 instructions.
template <class Packed>
consteval size_t PanelTokens(size_t tile_height) {
  return kFirstTileUnpacks<Packed> ? tile_height + 1 : 48;
}

// kS strips from `strip` on, all tokens of the call, in tiles of at most kT.
template <class Packed, Mode kMode, size_t kT, size_t kS>
void RunPanels(const DotArgs& args, size_t strip) {
  using W = PanelWeights<Packed>;
  constexpr size_t kCols = kPanelCols<Packed, kS>;
  alignas(kAlignment) uint8_t panel[kCols / W::kLineK * kS * kLineBytes];
  const size_t padded_cols = args.layout.padded_cols();
  for (size_t begin = 0; begin < padded_cols; begin += kCols) {
    TileStrips<kS> strips;
    strips.layout = args.layout;
    strips.begin = begin;
    strips.end = HWY_MIN(begin + kCols, padded_cols);
    const size_t asks = DivCeil(args.tokens, kT) * (strips.end - begin) / kActivationBlock;
    Ahead<kS> ahead = NextStrips<kS>(args, strip, strips, asks);
    strips.ahead = &ahead;
    constexpr size_t kLowest = LowestTile<kT>(PanelTokens<Packed>(kT));
    size_t first_tile = 0;
    for (size_t s = 0; s < kS; ++s) strips.scales[s] = args.scales[strip + s];
    if constexpr (kFirstTileUnpacks<Packed>) {
      for (size_t s = 0; s < kS; ++s) {
        strips.weights[s] = reinterpret_cast<const uint8_t*>(args.weights[strip + s]) +
                            begin / Packed::kLineK * kLineBytes;
      }
      strips.panel = panel;
      RunTokenTiles<TokenTile, UnpackingWeights<Packed>, kMode, kT, kS, kLowest, kCols>(
          args, strip, strips, 0, 1);
      first_tile = 1;
    } else {
      for (size_t s = 0; s < kS; ++s) {
        UnpackStrip<Packed, kS>(args.weights[strip + s], begin, strips.end, panel + s * kLineBytes);
      }
    }
    for (size_t s = 0; s < kS; ++s) strips.weights[s] = panel + s * kLineBytes;
    RunTokenTiles<TokenTile, W, kMode, kT, kS, kLowest, kCols>(args, strip, strips, first_tile);
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_PANEL_INL_H_
