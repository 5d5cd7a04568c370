// The dot kernel for many tokens on CPUs with AMX, where both scales are constant along K
// (per-channel weights, row activations): 16 tokens × 16 rows × 64 values of K in one instruction.
// Sums are exact integers and meet the scales as everywhere, so the result is the same bits; only
// the time differs.
//
// R16K4 is the layout that TDPBSSD wants of its second operand: a line of 64 bytes holds 4
// consecutive K values of 16 rows. int8 tiles load straight from the packed file; int4 lines are
// unpacked to int8, 64 values of K at a time.
//
// Tried and dropped: the same for blocked formats, a tile stored and scaled after every 32 values.
// At 2048×5632 and 128 tokens it reached 0.75 of the VPDPBUSD kernel's speed.
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
inline constexpr size_t kAmxK = 64;  // values of K in a tile

// Tile registers: sums of two token groups × two strips, or of one group × four; two groups of
// tokens, two strips.
inline constexpr int kSums = 0;  // + 2 · group + strip, or + strip of four
inline constexpr int kTokens = 4;
inline constexpr int kWeights = 6;

// The operand of LDTILECFG.
struct alignas(kAlignment) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// For groups of `first` and `second` tokens (0: no second group).
HWY_INLINE void Configure(size_t first, size_t second) {
  TileConfig config;
  const auto set = [&](int tile, size_t rows) SLUICE_LAMBDA {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = kLineBytes;  // 16 sums, or 64 values of K
  };
  for (const int strip : {0, 1}) {
    set(kSums + strip, first);
    set(kSums + 2 + strip, second == 0 ? first : second);
    set(kWeights + strip, kAmxK / kTileK);
  }
  set(kTokens, first);
  set(kTokens + 1, HWY_MAX(second, size_t{1}));
  asm volatile("ldtilecfg %0" : : "m"(config));
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
template <int kSum, int kX, int kW>
HWY_INLINE void TileDot() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// 64 values of K of a strip, from column k on, as a tile wants them: in place, or unpacked into
// `buffer`. What lies in `buffer` beyond the strip's end meets activations that are 0 there; it is
// zeroed all the same, once, so that nothing uninitialized is read.
template <bool kInt4>
HWY_INLINE const void* WeightTile(const std::byte* strip, const PackedLayout& layout, size_t k,
                                  int8_t* buffer) {
  const hn::FixedTag<int8_t, kLineBytes> d;
  const auto* weights = reinterpret_cast<const int8_t*>(strip);
  const size_t here = HWY_MIN(kAmxK, layout.padded_cols() - k);
  if constexpr (kInt4) {
    const hn::Repartition<uint16_t, decltype(d)> words;
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
    if (here == kAmxK) return from;
    std::memcpy(buffer, from, here / kTileK * kLineBytes);
  }
  return buffer;
}

// Bytes ahead of the weights of one group of tokens, per strip: they are read once, as fast as
// memory gives them.
inline constexpr size_t kAmxPrefetchBytes = 512;

// Asks for the weights of 64 columns that lie kAmxPrefetchBytes behind column k; behind the strip's
// end lies, as a rule, what the next call reads.
template <bool kInt4>
HWY_INLINE void AskBehind(const std::byte* strip, size_t k) {
  constexpr size_t kBytesPerK = kStripRows * (kInt4 ? 4 : 8) / 8;
  const std::byte* from = strip + k * kBytesPerK + kAmxPrefetchBytes;
  for (size_t i = 0; i < kAmxK * kBytesPerK; i += kLineBytes) __builtin_prefetch(from + i, 0, 3);
}

// Asks for 64 columns, from k on, of what the next call will read: a kernel of many tokens dwells
// on its weights, and memory would idle meanwhile. (Into L2: L1 is full.)
HWY_INLINE void AskAhead(const std::byte* next, const PackedLayout& layout, size_t k) {
  if (next == nullptr) return;
  const size_t bytes_per_k = kStripRows * layout.weight_bits() / 8;
  const std::byte* from = next + k * bytes_per_k;
  const size_t cols = HWY_MIN(kAmxK, layout.padded_cols() - k);
  for (size_t i = 0; i < cols * bytes_per_k; i += kLineBytes) __builtin_prefetch(from + i, 0, 2);
}

// y = float(S) · (w_scale · x_scale) for up to 16 tokens of one strip, from tile kSum.
template <int kSum>
HWY_INLINE void StoreSums(const DotArgs& args, size_t strip, size_t token, size_t tokens) {
  const hn::FixedTag<float, kStripRows> df;
  const hn::FixedTag<int32_t, kStripRows> di;
  alignas(kAlignment) int32_t sums[kAmxTokens * kStripRows];
  TileStore<kSum>(sums, kLineBytes);
  const auto w_scale = hn::Load(df, reinterpret_cast<const float*>(args.scales[strip]));
  // In locals: a vector store may alias anything, and all of `args` would be read again for each
  // row.
  const float* x_scale = args.x->scales + (args.first_token + token) * args.x->scale_stride;
  const size_t x_scale_stride = args.x->scale_stride;
  float* out = args.out + token * kDotStride + strip * kStripRows;
  const int32_t* sum = sums;
  for (size_t t = 0; t < tokens; ++t) {
    const auto scale = hn::Mul(w_scale, hn::Set(df, *x_scale));
    hn::Store(hn::Mul(hn::ConvertTo(df, hn::Load(di, sum)), scale), df, out);
    x_scale += x_scale_stride;
    sum += kStripRows;
    out += kDotStride;
  }
}

// kGroups groups of up to 16 tokens, `counts` each, times kStrips strips: at most 4 tiles of sums.
template <bool kInt4, int kGroups, int kStrips>
void TileBlock(const DotArgs& args, size_t strip, size_t token, const size_t (&counts)[2]) {
  alignas(kAlignment) int8_t buffers[kStrips][kAmxK / kTileK * kLineBytes];
  if (args.layout.padded_cols() % kAmxK != 0) std::memset(buffers, 0, sizeof(buffers));
  const size_t stride = args.x->value_stride;
  const int8_t* x = args.x->values + (args.first_token + token) * stride;
  UnrollTile<kGroups, kStrips>([](auto g, auto s) SLUICE_LAMBDA { TileZero<kSums + 2 * g + s>(); });
  for (size_t k = 0; k < args.layout.padded_cols(); k += kAmxK) {
    if constexpr (kGroups == 1) {  // strip by strip: there are not registers for all
      TileLoad<kTokens>(x + k, stride);
      Unroll<kStrips>([&](auto s) SLUICE_LAMBDA {
        AskBehind<kInt4>(args.weights[strip + s], k);
        constexpr int kTile = kWeights + static_cast<int>(s % 2);
        TileLoad<kTile>(WeightTile<kInt4>(args.weights[strip + s], args.layout, k, buffers[s]),
                        kLineBytes);
        TileDot<kSums + s, kTokens, kTile>();
      });
      continue;
    }
    Unroll<kStrips>([&](auto s) SLUICE_LAMBDA {
      if (token == 0) AskAhead(args.next_weights[strip + s], args.layout, k);
      TileLoad<kWeights + s>(WeightTile<kInt4>(args.weights[strip + s], args.layout, k, buffers[s]),
                             kLineBytes);
    });
    Unroll<kGroups>([&](auto g) SLUICE_LAMBDA {
      TileLoad<kTokens + g>(x + g * kAmxTokens * stride + k, stride);
      Unroll<kStrips>(
          [&](auto s) SLUICE_LAMBDA { TileDot<kSums + 2 * g + s, kTokens + g, kWeights + s>(); });
    });
  }
  UnrollTile<kGroups, kStrips>([&](auto g, auto s) SLUICE_LAMBDA {
    StoreSums<kSums + 2 * g + s>(args, strip + s, token + g * kAmxTokens, counts[g]);
  });
}

template <bool kInt4>
void DotTiles(const DotArgs& args) {
  for (size_t token = 0; token < args.tokens; token += 2 * kAmxTokens) {
    const size_t left = args.tokens - token;
    const size_t counts[2] = {HWY_MIN(left, kAmxTokens),
                              HWY_MIN(left - HWY_MIN(left, kAmxTokens), kAmxTokens)};
    Configure(counts[0], counts[1]);
    const bool two = counts[1] != 0;
    size_t strip = 0;
    // Four streams of memory.
    for (; !two && strip + 4 <= args.num_strips; strip += 4) {
      TileBlock<kInt4, 1, 4>(args, strip, token, counts);
    }
    for (; strip + 2 <= args.num_strips; strip += 2) {
      two ? TileBlock<kInt4, 2, 2>(args, strip, token, counts)
          : TileBlock<kInt4, 1, 2>(args, strip, token, counts);
    }
    if (strip < args.num_strips) {
      two ? TileBlock<kInt4, 2, 1>(args, strip, token, counts)
          : TileBlock<kInt4, 1, 1>(args, strip, token, counts);
    }
  }
  // Left in use, the tile state would be saved at every context switch.
  asm volatile("tilerelease");
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_DOT_AMX_INL_H_
