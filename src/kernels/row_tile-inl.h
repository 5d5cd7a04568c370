// One token times strips of packed weights, straight from its activation row: the kernel of
// decoding, bound by memory.
#ifndef SLUICE_SRC_KERNELS_ROW_TILE_INL_H_
#define SLUICE_SRC_KERNELS_ROW_TILE_INL_H_

#include <bit>

#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Bytes ahead of the packed weights being read, per strip: they come from DRAM.
inline constexpr size_t kRowPrefetchBytes = 512;

// Lines that are loaded before they are needed. Cores that execute in order wait for a load
// otherwise; others do not care. (Left to itself, GCC loads as many as there are, and then spills.)
inline constexpr size_t kLinesAhead = HWY_ARCH_ARM ? 1 : 0;

// With SDOT the source's order takes fewer instructions and no longer, by the models of all cores
// (bench/mca). Without, GCC's is better on those that execute in order.
#ifdef SLUICE_DOT4_SDOT
#define SLUICE_ROW_ORDER SLUICE_SOURCE_ORDER
#else
#define SLUICE_ROW_ORDER
#endif

template <class W, Mode kMode, size_t kS>
class RowTile {
 public:
  // All columns of kS strips from `strip` on.
  SLUICE_ROW_ORDER static void Run(const DotArgs& args, size_t strip, size_t token) {
    const Pointers p(args, strip, args.first_token + token);
    VF acc[kC];
    if constexpr (kMode == Mode::kBothConstant) {
      Sums sum;
      const VI start = hn::Set(LaneTag(), W::Dot::kStart * *p.total_offset);
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[c] = W::Dot::Begin(start); });
      const size_t cols = args.layout.padded_cols();
      const size_t turn = TurnToNext(args.layout, kActivationBlock);
      for (size_t begin = 0, end = turn == 0 ? cols : turn; begin < cols; begin = end, end = cols) {
        Add(p, begin, end, begin == turn ? p.next_prefetch : kRowPrefetchBytes, sum);
      }
      Unroll<kC>([&](auto c)
                     SLUICE_LAMBDA { acc[c] = hn::ConvertTo(FloatTag(), W::Dot::End(sum[c])); });
    } else {
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { acc[c] = hn::Zero(FloatTag()); });
      // Blocks of 32, the most common, without the loops that longer ones take.
      if (XBlocked(kMode) || args.layout.block() == kActivationBlock) {
        Blocks<true>(p, args.layout, acc);
      } else {
        Blocks<false>(p, args.layout, acc);
      }
    }
    float* out = args.out + token * kDotStride + strip * kStripRows;
    Unroll<kC>([&](auto c) SLUICE_LAMBDA {
      const VF y =
          ApplyConstantScales<kMode>(acc[c], p.scales[c / kVectors], c % kVectors, p.x_scales);
      hn::Store(y, FloatTag(), out + c * kLanes);
    });
  }

 private:
  static constexpr size_t kC = kS * kVectors;
  using Sums = typename W::Dot::Sum[kC];

  struct Pointers {
    Pointers(const DotArgs& args, size_t strip, size_t row) {
      for (size_t s = 0; s < kS; ++s) {
        weights[s] = reinterpret_cast<const uint8_t*>(args.weights[strip + s]);
        scales[s] = args.scales[strip + s];
      }
      const ActivationRows& rows = *args.x;
      next_prefetch = kRowPrefetchBytes;
      if (args.next_weights[strip] != nullptr) {
        next_prefetch += static_cast<size_t>(args.next_weights[strip] - args.weights[strip]) -
                         args.layout.strip_weight_bytes();
      }
      x = rows.values + row * rows.value_stride;
      x_scales = rows.scales + row * rows.scale_stride;
      offsets = rows.offsets + row * rows.offset_stride;
      total_offset = rows.total_offset + row;
    }
    const uint8_t* weights[kS];
    const std::byte* scales[kS];
    // From a line near the strip's end to the one to ask for: of the strip that the next call
    // reads, which is as far away for all strips, as a rule.
    size_t next_prefetch;
    const int8_t* x;
    const float* x_scales;
    const int32_t* offsets;
    const int32_t* total_offset;  // kRow only
  };

  // Adds the 32 columns from k on: the innermost code, without a loop. (As a loop of lines GCC 14
  // kept every sum twice and moved each from one copy to the other in every turn: 0.6 of the
  // speed.)
  static HWY_INLINE void Add32(const Pointers& p, size_t k, size_t prefetch, Sums& sum) {
    const typename W::Dot::Row32 row{p.x + k};
    constexpr size_t kLines = W::Dot::kTwoSteps ? 0 : kActivationBlock / W::kLineK;
    if constexpr (W::Dot::kTwoSteps) AddTwoByTwo(p, k, prefetch, sum);
    VU8 w[kLinesAhead + 1][kC];
    const uint8_t* lines[kS];
    [[maybe_unused]] const uint8_t* ahead[kS];
    Unroll<kS>([&](auto s) SLUICE_LAMBDA {
      lines[s] = p.weights[s] + k * (kLineBytes / W::kLineK);
      // ARM's prefetch adds a number to an address. Of a sum GCC made each address by itself, and
      // kept all of the pointers that ReadAfterSum ties to sums.
      if constexpr (HWY_ARCH_ARM && kLines != 0) OpaquePointer(ahead[s] = lines[s] + prefetch);
    });
    Unroll<kLines == 0 ? 0 : kLines + kLinesAhead>([&](auto at) SLUICE_LAMBDA {
      if constexpr (at < kLines) {
        Unroll<kS>([&](auto s) SLUICE_LAMBDA {
          const uint8_t* line = lines[s] + at * kLineBytes;
          PrefetchLine(HWY_ARCH_ARM ? ahead[s] + at * kLineBytes : line + prefetch);
          Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
            w[at % (kLinesAhead + 1)][s * kVectors + v] =
                W::Load(line + v * kLanes * sizeof(int32_t));
          });
        });
      }
      if constexpr (at < kLinesAhead) return;
      constexpr size_t i = at - HWY_MIN(kLinesAhead, size_t{at});
      Unroll<W::kSteps>([&](auto step) SLUICE_LAMBDA {
        VU8 part[kC];
        Unroll<kC>([&](auto c)
                       SLUICE_LAMBDA { part[c] = W::Step(w[i % (kLinesAhead + 1)][c], step); });
        const auto x = row.template Four<i * W::kSteps + step>();
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[c] = W::Dot::Add(sum[c], part[c], x); });
      });
      if constexpr (kLinesAhead != 0) {
        Unroll<kS>([&](auto s)
                       SLUICE_LAMBDA { W::Dot::ReadAfterSum(sum[s * kVectors], lines[s]); });
      }
    });
    if constexpr (W::Dot::kCarries) {
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[c] = W::Dot::Carry(sum[c]); });
    }
  }

  // The same, two lines at once.
  static HWY_INLINE void AddTwoByTwo(const Pointers& p, size_t k, size_t prefetch, Sums& sum) {
    const int8_t* row = p.x + k;
    const uint8_t* lines[kS];
    Unroll<kS>([&](auto s)
                   SLUICE_LAMBDA { lines[s] = p.weights[s] + k * (kLineBytes / W::kLineK); });
    Unroll<kActivationBlock / W::kLineK / 2>([&](auto i) SLUICE_LAMBDA {
      const auto x = W::Dot::template Four<2 * i>(row + 2 * i * kTileK);
      const auto next_x = W::Dot::template Four<2 * i + 1>(row + (2 * i + 1) * kTileK);
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        const uint8_t* line = lines[c / kVectors] + 2 * i * kLineBytes;
        if (c % kVectors == 0) PrefetchLine(line + prefetch);
        if (c % kVectors == 0) PrefetchLine(line + kLineBytes + prefetch);
        line += c % kVectors * kLanes * sizeof(int32_t);
        sum[c] = W::Dot::Add(sum[c], W::Load(line), W::Load(line + kLineBytes), x, next_x);
        if constexpr (c % 2 == 1) W::Dot::ReadAfterSum(sum[c], lines[c / kVectors]);
      });
      W::Dot::ReadAfterSum(sum[kC - 1], row);
    });
  }

  // Adds the columns [begin, end), at least 32.
  static HWY_INLINE void Add(const Pointers& p, size_t begin, size_t end, size_t prefetch,
                             Sums& sum) {
    do {
      Add32(p, begin, prefetch, sum);
      begin += kActivationBlock;
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { W::Dot::Pin(sum[c]); });
    } while (begin < end);
  }

  // The column, a multiple of `block`, from which on the lines to ask for are the next call's.
  static HWY_INLINE size_t TurnToNext(const PackedLayout& layout, size_t block) {
    constexpr size_t kAheadCols = kRowPrefetchBytes / kLineBytes * W::kLineK;
    const size_t cols = layout.padded_cols();
    return cols <= kAheadCols ? cols : (cols - kAheadCols + block - 1) & ~(block - 1);
  }

  template <bool kBlocksOf32>
  static HWY_INLINE void Blocks(const Pointers& p, const PackedLayout& layout, VF (&acc)[kC]) {
    // In shifts: a division took longer than a block of one token.
    const size_t shift = static_cast<size_t>(std::countr_zero(layout.block()));
    const size_t block = kBlocksOf32 ? kActivationBlock : layout.block();
    const size_t turn = TurnToNext(layout, block);
    size_t prefetch = kRowPrefetchBytes;
    size_t begin = 0;
    do {
      if (begin == turn) prefetch = p.next_prefetch;
      Sums sum;
      const VI start = hn::Set(LaneTag(), Start<kBlocksOf32>(p, begin, begin + block));
      Unroll<kC>([&](auto c) SLUICE_LAMBDA { sum[c] = W::Dot::Begin(start); });
      if constexpr (kBlocksOf32) {
        Add32(p, begin, prefetch, sum);
      } else {
        Add(p, begin, begin + block, prefetch, sum);
      }
      Fold(p, begin >> shift, begin / kActivationBlock, sum, acc);
      begin += block;
    } while (begin < layout.cols);
  }

  // The start value of the sums over [begin, end).
  template <bool kBlockOf32>
  static HWY_INLINE int32_t Start(const Pointers& p, size_t begin, size_t end) {
    if constexpr (W::Dot::kStart == 0) return 0;
    if constexpr (kBlockOf32) return W::Dot::kStart * p.offsets[begin / kActivationBlock];
    int32_t start = 0;
    for (size_t k = begin; k < end; k += kActivationBlock) {
      start += W::Dot::kStart * p.offsets[k / kActivationBlock];
    }
    return start;
  }

  // acc = fma(float(s), scale, acc).
  static HWY_INLINE void Fold(const Pointers& p, size_t weight_block, size_t x_block,
                              const Sums& sum, VF (&acc)[kC]) {
    const FloatTag df;
    VF x_scale = hn::Zero(df);
    if constexpr (XBlocked(kMode)) x_scale = hn::Set(df, p.x_scales[x_block]);
    Unroll<kS>([&](auto s) SLUICE_LAMBDA {
      VF w_scales[kVectors];
      if constexpr (WeightsBlocked(kMode)) LoadBlockScales(p.scales[s], weight_block, w_scales);
      Unroll<kVectors>([&](auto v) SLUICE_LAMBDA {
        constexpr size_t kAt = s * kVectors + v;
        const VF w_scale = WeightsBlocked(kMode) ? w_scales[v] : hn::Zero(df);
        acc[kAt] = hn::MulAdd(hn::ConvertTo(df, W::Dot::End(sum[kAt])),
                              BlockScale<kMode>(w_scale, x_scale), acc[kAt]);
      });
    });
  }
};

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_ROW_TILE_INL_H_
