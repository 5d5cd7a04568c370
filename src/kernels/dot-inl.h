// Strips of packed weights times tokens: which register tiles, in which order.
#ifndef SLUICE_SRC_KERNELS_DOT_INL_H_
#define SLUICE_SRC_KERNELS_DOT_INL_H_

#include "src/kernels/activation_tiles.h"
#include "src/kernels/float_tile-inl.h"
#include "src/kernels/kernels.h"
#ifdef SLUICE_DOT4_SDOT
#include "src/kernels/lane_tile-inl.h"
#endif
#include "src/kernels/panel-inl.h"
#include "src/kernels/row_tile-inl.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/token_tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// What the registers hold. AVX-512 has 32 registers of a whole strip; NEON 32 of a quarter, AVX2 16
// of a half, SSE 16 of a quarter.
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;

// One token: strips side by side, as many streams of memory.
inline constexpr size_t kRowStrips = kVectors == 1 ? 8 : kVectors == 2 ? 2 : 1;

// More: only integer sums take registers (token_tile-inl.h), 20 or 24 of AVX-512's, as VPDPBUSD's
// latency asks for many; sums that carry take two each. The height is one for all weights, since
// gate and up share one x. With a scale for every block of activations, tall tiles of two strips
// were faster over a panel; with one for a row square ones, which load less (bench/README.md).
struct TileShape {
  size_t tokens;
  size_t strips;
};
inline constexpr size_t kBlockTile = kVectors == 1   ? (NibbleDot::kCarries ? 6 : 10)
                                     : kVectors == 2 ? (NibbleDot::kCarries ? 5 : 6)
                                     : kManyRegisters && kOneInstruction ? 6
                                                                         : 2;
inline constexpr size_t kRowTile = kVectors == 1 ? 6 : kBlockTile;
template <class W>
inline constexpr bool kManySums = kVectors == 1 && !W::Dot::kCarries;
consteval size_t ModeHeight(Mode mode) { return XBlocked(mode) ? kBlockTile : kRowTile; }
template <class Packed>
consteval TileShape PanelShape(Mode mode) {
  const bool square = !XBlocked(mode) && kManySums<PanelWeights<Packed>>;
  return {ModeHeight(mode), kVectors != 1 ? size_t{1} : square ? size_t{4} : size_t{2}};
}
// From packed weights up to so many tokens take four strips, which are four streams of memory.
inline constexpr size_t kLowTile = 4;

inline size_t TileHeight(WeightFormat format, ActivationFormat x) {
  if (!format.quantized()) return 0;
#ifdef SLUICE_DOT4_SDOT
  return kLaneTile;
#endif
  return x == ActivationFormat::kBlock ? kBlockTile : kRowTile;
}

// After eight strips six are tried, and not four: six are what each of two threads takes three
// times of 36 (d_model 576).
consteval size_t FewerStrips(size_t strips) { return strips > 4 ? strips - 2 : strips / 2; }

// Calls body(kS, first strip) for strips [strip, …) of the call, kS at a time, then fewer at a time
// while they are kFewest or more. Returns the first strip that is left.
template <size_t kS, size_t kFewest, class Body>
HWY_INLINE size_t ForStrips(const DotArgs& args, size_t strip, const Body& body) {
  for (; strip + kS <= args.num_strips; strip += kS) {
    body(std::integral_constant<size_t, kS>(), strip);
  }
  constexpr size_t kNext = FewerStrips(kS);
  if constexpr (kNext >= kFewest) return ForStrips<kNext, kFewest>(args, strip, body);
  return strip;
}

// Token by token, from rows.
template <class W, Mode kMode>
void RunRows(const DotArgs& args, size_t strip) {
  for (size_t token = 0; token < args.tokens; ++token) {
    ForStrips<kRowStrips, 1>(args, strip, [&](auto s, size_t at) SLUICE_LAMBDA {
      RowTile<W, kMode, s>::Run(args, at, token);
    });
  }
}

// Tiles of tokens from packed weights.
template <class W, Mode kMode>
size_t RunPacked(const DotArgs& args) {
  constexpr size_t kT = ModeHeight(kMode);
  constexpr size_t kLowest = LowestTile<kT>(2);
  size_t strip = 0;
  if constexpr (kManySums<W>) {
    const TokenTiles cut(args.tiles->tokens, args.tiles->height);
    if (cut.Begin(1) <= kLowTile) {  // the first tile is the highest
      strip = ForStrips<4, 4>(args, 0, [&](auto s, size_t at) SLUICE_LAMBDA {
        RunPackedStrips<W, kMode, kLowTile, s, kLowest>(args, at);
      });
    }
  }
  constexpr size_t kS = kVectors == 1 ? 2 : 1;
  return ForStrips<kS, kS>(args, strip, [&](auto s, size_t at) SLUICE_LAMBDA {
    RunPackedStrips<W, kMode, kT, s, kLowest>(args, at);
  });
}

// Many tokens over panels.
template <class W, Mode kMode>
size_t RunOverPanels(const DotArgs& args) {
  constexpr TileShape kShape = PanelShape<W>(kMode);
  constexpr size_t kFewest = HWY_MIN(kShape.strips, size_t{2});
  return ForStrips<kShape.strips, kFewest>(args, 0, [&](auto s, size_t at) SLUICE_LAMBDA {
    RunPanels<W, kMode, kShape.tokens, s>(args, at);
  });
}

// One token from rows; more in tiles. (A strip that is left over is not worth tiles of its own.)
template <class W, Mode kMode>
void RunQuantized(const DotArgs& args) {
#if defined(SLUICE_DOT4_SMMLA)  // rows are NEON_DOTPROD's
  RunLaneTiles<W, kMode>(args);
#elif defined(SLUICE_DOT4_SDOT)
  return args.tiles != nullptr ? RunLaneTiles<W, kMode>(args) : RunRows<W, kMode>(args, 0);
#else
  size_t strip = 0;
  if (args.tiles != nullptr) {
    strip = args.tokens < PanelTokens<W>(ModeHeight(kMode)) ? RunPacked<W, kMode>(args)
                                                            : RunOverPanels<W, kMode>(args);
  }
  if (strip < args.num_strips) RunRows<W, kMode>(args, strip);
#endif
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

// Float weights: tiles of tokens, all of one height or one less.
inline constexpr size_t kFloatTokens = kVectors == 1 ? 6 : kManyRegisters || kVectors == 2 ? 4 : 2;

template <bool kBf16, size_t kT>
void RunFloat(const DotArgs& args) {
  constexpr size_t kStrips = kT <= 3 ? HWY_MIN(kRowStrips, kTileStrips) : kVectors == 1 ? 2 : 1;
  const TokenTiles cut(args.tokens, kFloatTokens);
  for (size_t tile = 0; tile < cut.count(); ++tile) {
    const size_t token = cut.Begin(tile);
    if (cut.Begin(tile + 1) - token != kT) continue;
    ForStrips<kStrips, 1>(args, 0, [&](auto s, size_t at) SLUICE_LAMBDA {
      FloatTile<kBf16, kT, s>::Run(args, at, token);
    });
  }
  if constexpr (kT > 1) RunFloat<kBf16, kT - 1>(args);
}

inline void Dot(const DotArgs& args) {
  switch (args.layout.format.type) {
    case WeightType::kInt4:
      return DotQuantized<Int4Weights>(args);
    case WeightType::kInt8:
      return DotQuantized<Int8Weights>(args);
    case WeightType::kBf16:
      return RunFloat<true, kFloatTokens>(args);
    case WeightType::kF32:
      return RunFloat<false, kFloatTokens>(args);
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_DOT_INL_H_
