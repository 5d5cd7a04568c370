// The dot kernel for many tokens on CPUs with AMX: 16 tokens × 16 rows × 64 (or 32) values of K in
// one instruction. Sums are exact integers and meet the scales in the same order as everywhere, so
// the result is the same bits; only the time differs.
//
// R16K4 is the layout that TDPBSSD wants of its second operand: a line of 64 bytes holds 4
// consecutive K values of 16 rows. int8 tiles load straight from the packed file; int4 lines are
// unpacked to int8, 8 lines at a time.
#ifndef SLUICE_SRC_KERNELS_DOT_AMX_INL_H_
#define SLUICE_SRC_KERNELS_DOT_AMX_INL_H_

#include <cstring>

#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

using AmxInt = hn::FixedTag<int32_t, kStripRows>;
using AmxFloat = hn::FixedTag<float, kStripRows>;
using AmxBytes = hn::FixedTag<int8_t, kLineBytes>;

inline constexpr size_t kAmxTokens = 16;
inline constexpr size_t kAmxK = 64;  // values of K in a full tile

// Tile registers. Two sums alternate so that the matrix unit works on a block while the vector unit
// scales the one before.
enum : int { kSum0 = 0, kSum1 = 1, kX = 4, kW = 6 };

// The operand of LDTILECFG.
struct alignas(kAlignment) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Tiles for `tokens` tokens and steps of `k` values.
HWY_INLINE void Configure(size_t tokens, size_t k) {
  TileConfig config;
  for (const int sum : {kSum0, kSum1}) {
    config.rows[sum] = static_cast<uint8_t>(tokens);
    config.row_bytes[sum] = kStripRows * sizeof(int32_t);
  }
  config.rows[kX] = static_cast<uint8_t>(tokens);
  config.row_bytes[kX] = static_cast<uint16_t>(k);
  config.rows[kW] = static_cast<uint8_t>(k / kTileK);
  config.row_bytes[kW] = kLineBytes;
  _tile_loadconfig(&config);
}

// The instructions by tile number; the compiler's own intrinsics take literals only, and do not say
// that a tile load reads memory.
template <int kTile>
HWY_INLINE void TileZero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
HWY_INLINE void TileLoad(const void* from, size_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void TileStore(void* to, size_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
// sum += x · w, signed bytes.
template <int kSum>
HWY_INLINE void TileDot() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// `lines` lines of int8 weights from column k on: in place, or unpacked into `buffer`. Beyond the
// strip's end there are zeros.
template <bool kInt4>
HWY_INLINE const void* WeightLines(const DotArgs& args, size_t strip, size_t k, size_t step,
                                   int8_t* buffer) {
  const auto* weights = reinterpret_cast<const int8_t*>(args.weights[strip]);
  const size_t here = HWY_MIN(step, args.layout.padded_cols() - k);
  const AmxBytes d;
  if constexpr (kInt4) {
    const hn::Repartition<uint16_t, AmxBytes> words;
    const auto nibble = hn::Set(d, 0x0F);
    const auto eight = hn::Set(d, 8);
    const int8_t* from = weights + k / (2 * kTileK) * kLineBytes;
    for (size_t i = 0; i < here; i += 2 * kTileK, from += kLineBytes) {
      const auto line = hn::Load(d, from);
      const auto high = hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(words, line)));
      int8_t* to = buffer + i / kTileK * kLineBytes;
      hn::Store(hn::Sub(hn::And(line, nibble), eight), d, to);
      hn::Store(hn::Sub(hn::And(high, nibble), eight), d, to + kLineBytes);
    }
  } else {
    const int8_t* from = weights + k / kTileK * kLineBytes;
    if (here == step) return from;
    std::memcpy(buffer, from, here / kTileK * kLineBytes);
  }
  if (here < step) {
    std::memset(buffer + here / kTileK * kLineBytes, 0, (step - here) / kTileK * kLineBytes);
  }
  return buffer;
}

// sum = the products of `tokens` rows and one strip over [begin, end), stored to `out`.
template <bool kInt4, int kSum>
HWY_INLINE void SumBlock(const DotArgs& args, size_t strip, const int8_t* x, size_t begin,
                         size_t end, size_t step, int32_t* out) {
  alignas(kAlignment) int8_t buffer[kAmxK / kTileK * kLineBytes];
  TileZero<kSum>();
  for (size_t k = begin; k < end; k += step) {
    const void* w = WeightLines<kInt4>(args, strip, k, step, buffer);
    TileLoad<kX>(x + k, args.x->value_stride);
    TileLoad<kW>(w, kLineBytes);
    TileDot<kSum>();
  }
  TileStore<kSum>(out, kStripRows * sizeof(int32_t));
}

HWY_INLINE hn::Vec<AmxFloat> BlockScale(const DotArgs& args, size_t strip, size_t block) {
  const hn::Rebind<hwy::bfloat16_t, AmxFloat> dh;
  const auto* scales = reinterpret_cast<const hwy::bfloat16_t*>(args.scales[strip]);
  return hn::PromoteTo(AmxFloat(), hn::Load(dh, scales + block * kStripRows));
}

// One strip for up to 16 tokens from `token` on. The accumulators are always 16, so that they live
// in registers; shorter groups compute with leftover rows of `sums` and store `tokens` of them.
template <bool kInt4>
void StripForTokens(const DotArgs& args, size_t strip, size_t token, size_t tokens) {
  const AmxFloat df;
  const PackedLayout& layout = args.layout;
  const ActivationRows& rows = *args.x;
  const bool w_blocked = layout.format.blocked();
  const bool x_blocked = rows.format == ActivationFormat::kBlock;
  const size_t block = x_blocked ? kActivationBlock : layout.block();
  const size_t step = HWY_MIN(block, kAmxK);
  const size_t first = args.first_token + token;
  const int8_t* x = rows.values + first * rows.value_stride;
  // Rows that are not there read the last one's scales; their results are not stored.
  const float* x_scales[kAmxTokens];
  SLUICE_UNROLL
  for (size_t t = 0; t < kAmxTokens; ++t) {
    x_scales[t] = rows.scales + (first + HWY_MIN(t, tokens - 1)) * rows.scale_stride;
  }
  alignas(kAlignment) int32_t sums[2][kAmxTokens * kStripRows] = {};
  hn::Vec<AmxFloat> acc[kAmxTokens];
  SLUICE_UNROLL
  for (size_t t = 0; t < kAmxTokens; ++t) acc[t] = hn::Zero(df);

  // acc = fma(float(s), scale, acc), with the scale that the formats ask for.
  const auto fold = [&](size_t begin, const int32_t* sum) HWY_ATTR {
    const auto w_scale =
        w_blocked ? BlockScale(args, strip, begin / layout.block()) : hn::Set(df, 1.0f);
    SLUICE_UNROLL
    for (size_t t = 0; t < kAmxTokens; ++t) {
      const auto s = hn::ConvertTo(df, hn::Load(AmxInt(), sum + t * kStripRows));
      // ×1 is exact, so one expression serves all cases: w_scale, x_scale or their product.
      const float x_scale = x_blocked ? x_scales[t][begin / kActivationBlock] : 1.0f;
      acc[t] = hn::MulAdd(s, hn::Mul(w_scale, hn::Set(df, x_scale)), acc[t]);
    }
  };
  size_t begin = 0;
  for (; begin + block < layout.cols; begin += 2 * block) {
    SumBlock<kInt4, kSum0>(args, strip, x, begin, begin + block, step, sums[0]);
    SumBlock<kInt4, kSum1>(args, strip, x, begin + block, begin + 2 * block, step, sums[1]);
    fold(begin, sums[0]);
    fold(begin + block, sums[1]);
  }
  if (begin < layout.cols) {
    SumBlock<kInt4, kSum0>(args, strip, x, begin, begin + block, step, sums[0]);
    if (w_blocked || x_blocked) {
      fold(begin, sums[0]);
    } else {
      SLUICE_UNROLL
      for (size_t t = 0; t < kAmxTokens; ++t) {
        acc[t] = hn::ConvertTo(df, hn::Load(AmxInt(), sums[0] + t * kStripRows));
      }
    }
  }
  const auto row_scale = w_blocked
                             ? hn::Set(df, 1.0f)
                             : hn::Load(df, reinterpret_cast<const float*>(args.scales[strip]));
  float* out = args.out + token * args.out_stride + strip * kStripRows;
  SLUICE_UNROLL
  for (size_t t = 0; t < kAmxTokens; ++t) {
    if (t >= tokens) break;
    // The scales that are constant along K, once, at the end; both: as a product.
    const auto x_scale = hn::Set(df, x_blocked ? 1.0f : x_scales[t][0]);
    hn::Store(hn::Mul(acc[t], hn::Mul(row_scale, x_scale)), df, out + t * args.out_stride);
  }
}

template <bool kInt4>
void DotTiles(const DotArgs& args) {
  const bool x_blocked = args.x->format == ActivationFormat::kBlock;
  const size_t step = HWY_MIN(x_blocked ? kActivationBlock : args.layout.block(), kAmxK);
  size_t configured = 0;
  for (size_t token = 0; token < args.tokens; token += kAmxTokens) {
    const size_t tokens = HWY_MIN(kAmxTokens, args.tokens - token);
    if (tokens != configured) Configure(configured = tokens, step);
    for (size_t strip = 0; strip < args.num_strips; ++strip) {
      StripForTokens<kInt4>(args, strip, token, tokens);
    }
  }
  // Left in use, the tile state would be saved at every context switch.
  _tile_release();
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_DOT_AMX_INL_H_
