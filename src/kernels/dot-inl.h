// Strips of packed weights times tokens: which register tiles, in which order.
#ifndef SLUICE_SRC_KERNELS_DOT_INL_H_
#define SLUICE_SRC_KERNELS_DOT_INL_H_

#include "src/kernels/kernels.h"
#include "src/kernels/panel-inl.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Tiles of few tokens: what the registers hold. AVX-512 has 32 registers of a whole strip; NEON 32
// of a quarter, AVX2 16 of a half, SSE 16 of a quarter. Blocked modes need an integer and a float
// accumulator each; where VPDPBUSD has 16 registers only, the integers come first, as it needs ten
// independent sums to be kept busy, and the floats, used once in 32 columns, live in memory.
struct TileShape {
  size_t tokens;  // of the highest tile
  size_t strips;
  size_t few_tokens;  // up to so many, a tile takes few_strips: as many streams of memory
  size_t few_strips;
};
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;
inline constexpr TileShape kBlockedShape = kVectors == 1         ? TileShape{6, 2, 3, 4}
                                           : kManyRegisters      ? TileShape{2, 1, 1, 1}
                                           : kVectors != 2       ? TileShape{1, 1, 1, 1}
                                           : NibbleDot::kCarries ? TileShape{2, 1, 1, 2}
                                                                 : TileShape{6, 1, 1, 2};
inline constexpr TileShape kConstantShape = kVectors == 1         ? TileShape{6, 2, 3, 4}
                                            : kManyRegisters      ? TileShape{4, 1, 1, 2}
                                            : kVectors != 2       ? TileShape{2, 1, 1, 1}
                                            : NibbleDot::kCarries ? TileShape{4, 1, 1, 2}
                                                                  : TileShape{6, 1, 1, 2};

// Tiles over a panel. Only integer sums take registers, so there are more of them: 20 or 24 with
// AVX-512, which VPDPBUSD's latency asks for. With a scale for every block of activations, tall
// tiles of two strips were faster, with one for a row square ones, which load less
// (bench/README.md).
struct PanelShape {
  size_t tokens;
  size_t strips;
};
template <class W>
inline constexpr bool kManySums = kVectors == 1 && !PanelWeights<W>::Dot::kCarries;
// The height is one for all formats, as gate and up share one x.
inline constexpr size_t kBlockTile = kVectors == 1    ? (NibbleDot::kCarries ? 6 : 10)
                                     : kVectors == 2  ? (NibbleDot::kCarries ? 5 : 6)
                                     : kManyRegisters ? 6
                                                      : 2;
inline constexpr size_t kRowTile = kVectors == 1 ? 6 : kBlockTile;
template <class W, Mode kMode>
inline constexpr PanelShape kPanelShape =
    kXBlocked<kMode> ? PanelShape{kBlockTile, kVectors == 1 ? 2 : 1}
                     : PanelShape{kRowTile, kManySums<W>    ? 4
                                            : kVectors == 1 ? 2
                                                            : 1};

inline size_t TileHeight(WeightFormat format, ActivationFormat x) {
  if (!format.quantized()) return 0;
  return x == ActivationFormat::kBlock ? kBlockTile : kRowTile;
}

// A family of tiles of one kind, Of<kT, kS>::Run, and the shapes it is used in.
template <class W, Mode kMode>
struct QuantizedTiles {
  static constexpr TileShape kShape = kMode == Mode::kBothConstant ? kConstantShape : kBlockedShape;
  template <size_t kT, size_t kS>
  using Of = Tile<W, kMode, kT, kS>;
};

template <bool kBf16>
struct FloatTiles {
  static constexpr TileShape kShape = kConstantShape;
  template <size_t kT, size_t kS>
  using Of = FloatTile<kBf16, kT, kS>;
};

// All strips from `strip` on for kT tokens, widest tiles first.
template <class Tiles, size_t kT, size_t kS>
HWY_INLINE void RunStrips(const DotArgs& args, size_t strip, size_t token) {
  for (; strip + kS <= args.num_strips; strip += kS) {
    Tiles::template Of<kT, kS>::Run(args, strip, token);
  }
  if constexpr (kS > 1) {
    if (strip < args.num_strips) RunStrips<Tiles, kT, kS / 2>(args, strip, token);
  }
}

// The same for a number of tokens known at run time, 1 … kT.
template <class Tiles, size_t kT>
HWY_INLINE void RunTile(size_t tokens, const DotArgs& args, size_t strip, size_t token) {
  if constexpr (kT > 1) {
    if (tokens != kT) return RunTile<Tiles, kT - 1>(tokens, args, strip, token);
  }
  constexpr TileShape kShape = Tiles::kShape;
  RunStrips<Tiles, kT, kT <= kShape.few_tokens ? kShape.few_strips : kShape.strips>(args, strip,
                                                                                    token);
}

// All strips from `strip` on, all tokens, in tiles of at most kT tokens: as few as there can be,
// all of one height or one less.
template <class Tiles, size_t kT>
void Run(const DotArgs& args, size_t strip) {
  size_t token = 0;
  for (size_t tiles = DivCeil(args.tokens, kT); tiles != 0; --tiles) {
    const size_t count = DivCeil(args.tokens - token, tiles);
    RunTile<Tiles, kT>(count, args, strip, token);
    token += count;
  }
}

// Strips [strip, …) over panels of kS, then of half as many. (A strip that is left over is not
// worth panels of its own.)
template <class W, Mode kMode, size_t kS>
HWY_INLINE size_t RunPanelStrips(const DotArgs& args, size_t strip) {
  for (; strip + kS <= args.num_strips; strip += kS) {
    RunPanels<W, kMode, kPanelShape<W, kMode>.tokens, kS>(args, strip);
  }
  if constexpr (kS > 2) return RunPanelStrips<W, kMode, kS / 2>(args, strip);
  return strip;
}

// Few tokens straight from the packed weights, many over panels of them.
template <class W, Mode kMode>
void RunQuantized(const DotArgs& args) {
  using Tiles = QuantizedTiles<W, kMode>;
  size_t strip = 0;
  if (args.tiles != nullptr) {
    strip = RunPanelStrips<W, kMode, kPanelShape<W, kMode>.strips>(args, 0);
  }
  if (strip < args.num_strips) Run<Tiles, Tiles::kShape.tokens>(args, strip);
}

template <class W>
void DotQuantized(const DotArgs& args) {
  const bool x_blocked = args.x->format == ActivationFormat::kBlock;
  if (args.layout.format.blocked()) {
    x_blocked ? RunQuantized<W, Mode::kBothBlocked>(args)
              : RunQuantized<W, Mode::kWeightBlocked>(args);
  } else {
    x_blocked ? RunQuantized<W, Mode::kXBlocked>(args) : RunQuantized<W, Mode::kBothConstant>(args);
  }
}

inline void Dot(const DotArgs& args) {
  switch (args.layout.format.type) {
    case WeightType::kInt4:
      return DotQuantized<Int4Weights>(args);
    case WeightType::kInt8:
      return DotQuantized<Int8Weights>(args);
    case WeightType::kBf16:
      return Run<FloatTiles<true>, kConstantShape.tokens>(args, 0);
    case WeightType::kF32:
      return Run<FloatTiles<false>, kConstantShape.tokens>(args, 0);
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_DOT_INL_H_
