// The dot kernel for many tokens: weights are unpacked once, for all of them, into a panel that
// stays in the first-level cache; register tiles of tokens then run over it.
//
// A panel holds the strips of one register tile over kPanelCols columns, each byte as the dot
// product takes it: one line of 64 bytes for 4 columns. Tiles go on from panel to panel with their
// sums in the output, in the same order along K as a tile that takes all columns at once, so the
// results are the same bits.
#ifndef SLUICE_SRC_KERNELS_PANEL_INL_H_
#define SLUICE_SRC_KERNELS_PANEL_INL_H_

#include "hwy/cache_control.h"
#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Fewer tokens than this read the packed weights directly.
inline constexpr size_t kPanelTokens = 8;
// A whole number of the largest blocks. Two strips are 20 KiB, of a first-level cache of 32 or 48.
inline constexpr size_t kPanelCols = 5 * kMaxBlock;
inline constexpr size_t kPanelStripBytes = kPanelCols / kTileK * kLineBytes;

template <class Packed>
HWY_INLINE void UnpackStrip(const std::byte* strip, size_t begin, size_t end, uint8_t* panel) {
  const auto* from = reinterpret_cast<const uint8_t*>(strip) + begin / Packed::kLineK * kLineBytes;
  constexpr size_t kVectorBytes = kLanes * sizeof(int32_t);
  for (size_t k = begin; k < end; k += Packed::kLineK, from += kLineBytes) {
    Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
      const VU8 line = Packed::Load(from + v * kVectorBytes);
      Unroll<Packed::kSteps>([&](auto step) SLUICE_LAMBDA {
        hn::Store(Packed::Step(line, step), ByteTag(),
                  panel + step * kLineBytes + v * kVectorBytes);
      });
    });
    panel += Packed::kSteps * kLineBytes;
  }
}

// Asks memory for what the next call will read, a little with every tile: a kernel of many tokens
// dwells on its weights, and memory would idle meanwhile. (All at once, the requests fill the line
// buffers and the tiles wait behind them.)
class Ahead {
 public:
  // `bytes` from `from` on, in `steps` portions; null: nothing.
  Ahead() = default;
  Ahead(const std::byte* from, size_t bytes, size_t steps)
      : at_(from),
        end_(from == nullptr ? from : from + bytes),
        portion_(RoundUp(DivCeil(bytes, steps), kLineBytes)) {}
  HWY_INLINE void Ask() {
    const std::byte* end = end_ - at_ < static_cast<ptrdiff_t>(portion_) ? end_ : at_ + portion_;
    for (; at_ < end; at_ += kLineBytes) __builtin_prefetch(at_, 0, 2);
  }

 private:
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
  size_t portion_ = 0;
};

// A strip's columns [begin, end) of weights and scales.
HWY_INLINE Ahead WeightsAhead(const DotArgs& args, size_t strip, const TileRange& range,
                              size_t steps) {
  const size_t bits = kStripRows * args.layout.weight_bits();
  const std::byte* next = args.next_weights[strip];
  return Ahead(next == nullptr ? nullptr : next + range.begin * bits / 8,
               (range.end - range.begin) * bits / 8, steps);
}

// kT tokens from `token` on, times the panel.
template <class Packed, Mode kMode, size_t kT, size_t kS>
HWY_NOINLINE void PanelTile(const DotArgs& args, const uint8_t* panel, const TileRange& range,
                            size_t strip, size_t token) {
  TilePointers<kT, kS> p = PointersOf<kT, kS>(args, strip, token);
  p.weights_begin = range.begin;
  Unroll<kS>([&](auto s) SLUICE_LAMBDA { p.weights[s] = panel + s * kPanelStripBytes; });
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
HWY_INLINE void PanelTileOf(size_t tokens, const DotArgs& args, const uint8_t* panel,
                            const TileRange& range, size_t strip, size_t token) {
  if constexpr (kT > kLowest) {
    if (tokens != kT) {
      return PanelTileOf<Packed, kMode, kT - 1, kS, kLowest>(tokens, args, panel, range, strip,
                                                             token);
    }
  }
  PanelTile<Packed, kMode, kT, kS>(args, panel, range, strip, token);
}

// kS strips from `strip` on, all tokens, in tiles of at most kT: as many as there must be, all of
// the same height or one less.
template <class Packed, Mode kMode, size_t kT, size_t kS>
void RunPanels(const DotArgs& args, size_t strip) {
  alignas(kAlignment) uint8_t panel[kS * kPanelStripBytes];
  const size_t cols = args.layout.padded_cols();
  const size_t tiles = DivCeil(args.tokens, kT);
  for (size_t begin = 0; begin < cols; begin += kPanelCols) {
    const TileRange range = {begin, HWY_MIN(begin + kPanelCols, cols), begin == 0,
                             begin + kPanelCols >= cols};
    for (size_t s = 0; s < kS; ++s) {
      UnpackStrip<Packed>(args.weights[strip + s], range.begin, range.end,
                          panel + s * kPanelStripBytes);
    }
    Ahead ahead[kS];
    for (size_t s = 0; s < kS; ++s) ahead[s] = WeightsAhead(args, strip + s, range, tiles);
    for (size_t tile = 0, token = 0; tile < tiles; ++tile) {
      for (Ahead& a : ahead) a.Ask();
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
