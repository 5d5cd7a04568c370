// Strips of packed weights times tokens: register tiles of kT tokens × kS strips.
#ifndef SLUICE_SRC_KERNELS_DOT_INL_H_
#define SLUICE_SRC_KERNELS_DOT_INL_H_

#include "hwy/cache_control.h"
#include "src/kernels/dot4-inl.h"
#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// How scales meet integer sums (rule 2 of the contract).
enum class Mode {
  kBothBlocked,    // acc = fma(s, w_scale · x_scale, acc), blocks of 32
  kWeightBlocked,  // acc = fma(s, w_scale, acc), the weight's blocks; y = acc · x_scale
  kXBlocked,       // acc = fma(s, x_scale, acc), blocks of 32; y = acc · w_scale
  kBothConstant,   // y = s · (w_scale · x_scale)
};

// Bytes ahead of the weights being read, per strip. With one token the weights come from DRAM.
inline constexpr size_t kPrefetchBytes = 512;

struct Int8Weights {
  static constexpr size_t kLineK = kTileK;
  static constexpr size_t kSteps = 1;  // vectors of 4 K values in a line
  static constexpr int kStart = Dot4::kInt8Start;
  static HWY_INLINE VU8 Load(const uint8_t* p) { return Dot4::Prepare(hn::Load(ByteTag(), p)); }
  static HWY_INLINE VU8 Step(VU8 line, size_t) { return line; }
  static HWY_INLINE Dot4::Sum Dot(Dot4::Sum sum, VU8 w, VI x) { return Dot4::Int8(sum, w, x); }
};

struct Int4Weights {
  static constexpr size_t kLineK = 2 * kTileK;
  static constexpr size_t kSteps = 2;
  static constexpr int kStart = 1;
  static HWY_INLINE VU8 Load(const uint8_t* p) { return hn::Load(ByteTag(), p); }
  static HWY_INLINE VU8 Step(VU8 line, size_t step) {
    const auto nibble = hn::Set(ByteTag(), 0x0F);
    if (step == 0) return hn::And(line, nibble);
    // There is no shift of bytes on x86; the bits that a wider shift brings in are masked.
    const hn::Repartition<uint16_t, ByteTag> words;
    return hn::And(hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(words, line))), nibble);
  }
  static HWY_INLINE Dot4::Sum Dot(Dot4::Sum sum, VU8 w, VI x) { return Dot4::Nibble(sum, w, x); }
};

// The pointers that one register tile walks.
template <size_t kT, size_t kS>
struct TilePointers {
  const uint8_t* weights[kS];
  const std::byte* scales[kS];
  const int8_t* x[kT];
  const float* x_scales[kT];
  const int32_t* offsets[kT];
  int32_t total_offsets[kT];
};

template <size_t kT, size_t kS>
HWY_INLINE TilePointers<kT, kS> PointersOf(const DotArgs& args, size_t strip, size_t token) {
  TilePointers<kT, kS> p;
  Unroll<kS>([&](auto s) SLUICE_LAMBDA {
    p.weights[s] = reinterpret_cast<const uint8_t*>(args.weights[strip + s]);
    p.scales[s] = args.scales[strip + s];
  });
  const ActivationRows& x = *args.x;
  Unroll<kT>([&](auto t) SLUICE_LAMBDA {
    const size_t row = args.first_token + token + t;
    p.x[t] = x.values + row * x.value_stride;
    p.x_scales[t] = x.scales + row * x.scale_stride;
    p.offsets[t] = x.offsets + row * x.offset_stride;
    p.total_offsets[t] = x.format == ActivationFormat::kRow ? x.total_offset[row] : 0;
  });
  return p;
}

// Adds the columns [k, end) to the sums: the inner loop.
template <class W, size_t kT, size_t kS>
HWY_INLINE void AccumulateLines(const TilePointers<kT, kS>& p, size_t k, size_t end,
                                Dot4::Sum (&sum)[kT][kS * kVectors]) {
  constexpr size_t kC = kS * kVectors;
  constexpr size_t kBytesPerK = kLineBytes / W::kLineK;
  for (; k < end; k += W::kLineK) {
    VU8 w[kC];
    Unroll<kS>([&](auto s) SLUICE_LAMBDA {
      const uint8_t* line = p.weights[s] + k * kBytesPerK;
      if constexpr (kT == 1) hwy::Prefetch(line + kPrefetchBytes);
      Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
        w[s * kVectors + v] = W::Load(line + v * kLanes * sizeof(int32_t));
      });
    });
    Unroll<W::kSteps>([&](auto step) SLUICE_LAMBDA {
      VU8 part[kC];
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { part[c] = W::Step(w[c], step); });
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VI x = BroadcastFour(p.x[t] + k + step * kTileK);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = W::Dot(sum[t][c], part[c], x); });
      });
    });
  }
}

// The same, with sums carried every 32 columns where the instruction set needs it. (Where it does
// not, there is one loop: with two, GCC kept two copies of every accumulator and spilled half of
// them.)
template <class W, size_t kT, size_t kS>
HWY_INLINE void Accumulate(const TilePointers<kT, kS>& p, size_t begin, size_t end,
                           Dot4::Sum (&sum)[kT][kS * kVectors]) {
  if constexpr (!Dot4::kCarries) {
    AccumulateLines<W, kT, kS>(p, begin, end, sum);
  } else {
    for (size_t k = begin; k < end; k += kActivationBlock) {
      AccumulateLines<W, kT, kS>(p, k, k + kActivationBlock, sum);
      UnrollTile<kT, kS * kVectors>([&](auto t, auto c)
                                        SLUICE_LAMBDA { sum[t][c] = Dot4::Carry(sum[t][c]); });
    }
  }
}

// The 16 scales of block `b` of a strip, as floats, in vector `v`.
template <bool kBlocked>
HWY_INLINE VF LoadScales(const std::byte* scales, size_t b, size_t v) {
  const FloatTag df;
  const size_t index = b * kStripRows + v * kLanes;
  if constexpr (kBlocked) {
    const hn::Rebind<hwy::bfloat16_t, FloatTag> dh;
    return hn::PromoteTo(df,
                         hn::Load(dh, reinterpret_cast<const hwy::bfloat16_t*>(scales) + index));
  } else {
    return hn::Load(df, reinterpret_cast<const float*>(scales) + index);
  }
}

template <class W, Mode kMode, size_t kT, size_t kS>
struct Tile {
  static constexpr size_t kC = kS * kVectors;
  static constexpr bool kWeightsBlocked =
      kMode == Mode::kBothBlocked || kMode == Mode::kWeightBlocked;
  static constexpr bool kXBlocked = kMode == Mode::kBothBlocked || kMode == Mode::kXBlocked;

  // Sums of the block [begin, end) of K, in all lanes.
  static HWY_INLINE void Block(const TilePointers<kT, kS>& p, size_t begin, size_t end,
                               Dot4::Sum (&sum)[kT][kC]) {
    Unroll<kT>([&](auto t) SLUICE_LAMBDA {
      int32_t start = 0;
      if constexpr (W::kStart != 0) {
        if constexpr (kMode == Mode::kBothConstant) {
          start = W::kStart * p.total_offsets[t];
        } else if constexpr (kXBlocked) {
          start = W::kStart * p.offsets[t][begin / kActivationBlock];
        } else {
          for (size_t k = begin; k < end; k += kActivationBlock) {
            start += W::kStart * p.offsets[t][k / kActivationBlock];
          }
        }
      }
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[t][c] = Dot4::Begin(hn::Set(LaneTag(), start)); });
    });
    Accumulate<W, kT, kS>(p, begin, end, sum);
  }

  static void Run(const DotArgs& args, size_t strip, size_t token) {
    const FloatTag df;
    const TilePointers<kT, kS> p = PointersOf<kT, kS>(args, strip, token);
    const PackedLayout& layout = args.layout;
    VF acc[kT][kC];
    if constexpr (kMode == Mode::kBothConstant) {
      Dot4::Sum sum[kT][kC];
      Block(p, 0, layout.padded_cols(), sum);
      UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
        acc[t][c] = hn::ConvertTo(df, Dot4::End(sum[t][c]));
      });
    } else {
      UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA { acc[t][c] = hn::Zero(df); });
      const size_t block = kXBlocked ? kActivationBlock : layout.block();
      for (size_t begin = 0; begin < layout.cols; begin += block) {
        Dot4::Sum sum[kT][kC];
        Block(p, begin, begin + block, sum);
        Fold(p, begin / layout.block(), begin / kActivationBlock, sum, acc);
      }
    }
    Store(p, acc, args.out + token * args.out_stride + strip * kStripRows, args.out_stride);
  }

 private:
  // acc = fma(float(s), scale, acc).
  static HWY_INLINE void Fold(const TilePointers<kT, kS>& p, size_t weight_block, size_t x_block,
                              const Dot4::Sum (&sum)[kT][kC], VF (&acc)[kT][kC]) {
    const FloatTag df;
    VF w_scale[kC];
    if constexpr (kWeightsBlocked) {
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        w_scale[c] = LoadScales<true>(p.scales[c / kVectors], weight_block, c % kVectors);
      });
    }
    Unroll<kT>([&](auto t) SLUICE_LAMBDA {
      VF x_scale;
      if constexpr (kXBlocked) x_scale = hn::Set(df, p.x_scales[t][x_block]);
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        VF scale;
        if constexpr (kMode == Mode::kBothBlocked) {
          scale = hn::Mul(w_scale[c], x_scale);
        } else if constexpr (kWeightsBlocked) {
          scale = w_scale[c];
        } else {
          scale = x_scale;
        }
        acc[t][c] = hn::MulAdd(hn::ConvertTo(df, Dot4::End(sum[t][c])), scale, acc[t][c]);
      });
    });
  }

  // Applies the scales that are constant along K and stores.
  static HWY_INLINE void Store(const TilePointers<kT, kS>& p, const VF (&acc)[kT][kC], float* out,
                               size_t stride) {
    const FloatTag df;
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      VF y = acc[t][c];
      if constexpr (kMode == Mode::kWeightBlocked) {
        y = hn::Mul(y, hn::Set(df, p.x_scales[t][0]));
      } else if constexpr (kMode == Mode::kXBlocked) {
        y = hn::Mul(y, LoadScales<false>(p.scales[c / kVectors], 0, c % kVectors));
      } else if constexpr (kMode == Mode::kBothConstant) {
        const VF w_scale = LoadScales<false>(p.scales[c / kVectors], 0, c % kVectors);
        y = hn::Mul(y, hn::Mul(w_scale, hn::Set(df, p.x_scales[t][0])));
      }
      hn::Store(y, df, out + t * stride + c * kLanes);
    });
  }
};

// Float weights: acc = fma(w, x, acc), k ascending. kBf16: half the bytes, widened in registers.
template <bool kBf16, size_t kT, size_t kS>
struct FloatTile {
  static constexpr size_t kC = kS * kVectors;

  static void Run(const DotArgs& args, size_t strip, size_t token) {
    const FloatTag df;
    VF acc[kT][kC];
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA { acc[t][c] = hn::Zero(df); });
    const size_t stride = args.x->float_stride;
    const float* x = args.x->floats + (args.first_token + token) * stride;
    for (size_t k = 0; k < args.layout.cols; ++k) {
      VF w[kC];
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        w[c] = LoadScales<kBf16>(args.weights[strip + c / kVectors], k, c % kVectors);
      });
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VF xk = hn::Set(df, x[t * stride + k]);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { acc[t][c] = hn::MulAdd(w[c], xk, acc[t][c]); });
      });
    }
    float* out = args.out + token * args.out_stride + strip * kStripRows;
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      hn::Store(acc[t][c], df, out + t * args.out_stride + c * kLanes);
    });
  }
};

// Tile shapes: what the registers hold. AVX-512 has 32 registers of a whole strip; NEON 32 of a
// quarter, AVX2 16 of a half, SSE 16 of a quarter. Blocked modes need an integer and a float
// accumulator each. (6 × 4 tiles of 24 accumulators fit AVX-512 too, but GCC 14 stored half of them
// in each step: 0.6 of the speed.)
struct TileShape {
  size_t tokens;         // of a batch tile
  size_t strips;         // of a batch tile
  size_t decode_strips;  // of a tile of one token
};
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;
inline constexpr TileShape kBlockedShape = kVectors == 1    ? TileShape{6, 2, 4}
                                           : kManyRegisters ? TileShape{2, 1, 1}
                                           : kVectors == 2  ? TileShape{2, 1, 2}
                                                            : TileShape{1, 1, 1};
inline constexpr TileShape kConstantShape = kVectors == 1    ? TileShape{8, 2, 4}
                                            : kManyRegisters ? TileShape{4, 1, 2}
                                            : kVectors == 2  ? TileShape{4, 1, 2}
                                                             : TileShape{2, 1, 1};

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

// All tokens from `token` on, longest tiles first.
template <class Tiles, size_t kT>
HWY_INLINE void RunTokens(const DotArgs& args, size_t token) {
  constexpr size_t kS = kT == 1 ? Tiles::kShape.decode_strips : Tiles::kShape.strips;
  for (; token + kT <= args.tokens; token += kT) RunStrips<Tiles, kT, kS>(args, 0, token);
  if constexpr (kT > 1) {
    if (token < args.tokens) RunTokens<Tiles, kT / 2>(args, token);
  }
}

template <class Tiles>
void Run(const DotArgs& args) {
  RunTokens<Tiles, Tiles::kShape.tokens>(args, 0);
}

template <class W>
void DotQuantized(const DotArgs& args) {
  const bool x_blocked = args.x->format == ActivationFormat::kBlock;
  if (args.layout.format.blocked()) {
    x_blocked ? Run<QuantizedTiles<W, Mode::kBothBlocked>>(args)
              : Run<QuantizedTiles<W, Mode::kWeightBlocked>>(args);
  } else {
    x_blocked ? Run<QuantizedTiles<W, Mode::kXBlocked>>(args)
              : Run<QuantizedTiles<W, Mode::kBothConstant>>(args);
  }
}

inline void Dot(const DotArgs& args) {
  switch (args.layout.format.type) {
    case WeightType::kInt4:
      return DotQuantized<Int4Weights>(args);
    case WeightType::kInt8:
      return DotQuantized<Int8Weights>(args);
    case WeightType::kBf16:
      return Run<FloatTiles<true>>(args);
    case WeightType::kF32:
      return Run<FloatTiles<false>>(args);
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_DOT_INL_H_
