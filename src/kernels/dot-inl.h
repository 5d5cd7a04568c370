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

// Tile shapes: what the registers hold. AVX-512 has 32 registers of a whole strip; NEON 32 of a
// quarter, AVX2 16 of a half, SSE 16 of a quarter. Blocked modes need an integer and a float
// accumulator each; where VPDPBUSD has 16 registers only, the integers come first, as it needs ten
// independent sums to be kept busy, and the floats, used once in 32 columns, live in memory.
struct TileShape {
  size_t tokens;      // of the highest tile
  size_t strips;      // of a tile of many tokens
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

// Few tokens straight from the packed weights, many over a panel of them. (A strip that is left
// over is not worth panels of its own.)
template <class W, Mode kMode>
void RunQuantized(const DotArgs& args) {
  using Tiles = QuantizedTiles<W, kMode>;
  constexpr TileShape kShape = Tiles::kShape;
  if (args.tokens < kPanelTokens) return Run<Tiles, kShape.tokens>(args, 0);
  size_t strip = 0;
  for (; strip + kShape.strips <= args.num_strips; strip += kShape.strips) {
    RunPanels<W, kMode, kShape.tokens, kShape.strips>(args, strip);
  }
  if (strip < args.num_strips) Run<Tiles, kShape.few_tokens>(args, strip);
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
