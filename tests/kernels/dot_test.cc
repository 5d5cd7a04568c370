// Every dot kernel against the scalar reference: all formats and activation modes, awkward sizes,
// token counts around every register tile, misaligned and poisoned surroundings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "src/kernels/activation_tiles.h"
#include "src/kernels/kernels.h"
#include "src/kernels/reference.h"
#include "tests/support/kernel_targets.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using test::Agrees;
using test::AttainableKernels;
using test::FirstDifference;
using test::Random;

// Quantized rows with garbage between and behind them, as scratch memory that served other calls.
class Rows {
 public:
  Rows(Random& random, ActivationFormat format, size_t tokens, size_t cols) {
    rows_.format = format;
    rows_.cols = cols;
    floats_ = test::RandomVector(random, tokens * (cols + 3) + 1);
    // A stride that leaves NaN between rows, from an address that is only 4-byte aligned.
    rows_.float_stride = cols + 3;
    rows_.floats = floats_.data() + 1;
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t i = cols; i < cols + 3; ++i) {
        floats_[1 + t * rows_.float_stride + i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    if (format == ActivationFormat::kFloat) return;
    rows_.value_stride = RoundUp(cols, kMaxBlock);
    rows_.offset_stride = rows_.value_stride / kActivationBlock;
    rows_.scale_stride = format == ActivationFormat::kRow ? 1 : rows_.offset_stride;
    values_.resize(tokens * rows_.value_stride + kAlignment);
    scales_.assign(tokens * rows_.scale_stride, std::numeric_limits<float>::quiet_NaN());
    offsets_.resize(tokens * rows_.offset_stride);
    totals_.resize(tokens);
    rows_.values = values_.data();
    rows_.scales = scales_.data();
    rows_.offsets = offsets_.data();
    rows_.total_offset = totals_.data();
    for (size_t t = 0; t < tokens; ++t) {
      const float* x = rows_.floats + t * rows_.float_stride;
      int8_t* values = rows_.values + t * rows_.value_stride;
      float* scales = rows_.scales + t * rows_.scale_stride;
      int32_t* offsets = rows_.offsets + t * rows_.offset_stride;
      if (format == ActivationFormat::kRow) {
        reference::QuantizeRow(x, cols, values, scales, offsets, rows_.total_offset + t);
      } else {
        reference::QuantizeBlocks(
            {.x = x, .n = cols, .values = values, .scales = scales, .offsets = offsets});
      }
    }
  }
  ActivationRows& rows() { return rows_; }
  const ActivationRows& rows() const { return rows_; }
  int8_t& value(size_t token, size_t k) { return rows_.values[token * rows_.value_stride + k]; }

 private:
  ActivationRows rows_;
  std::vector<float> floats_;
  std::vector<int8_t> values_;
  std::vector<float> scales_;
  std::vector<int32_t> offsets_;
  std::vector<int32_t> totals_;
};

// The first `tokens` rows in tiles, with garbage where no kernel should look.
class Tiles {
 public:
  Tiles(const ActivationRows& rows, size_t tokens, size_t height, size_t columns) {
    // An address that is only 4-byte aligned.
    data_.assign(TilesBytes(tokens, rows) + sizeof(float), std::byte{0x7F});
    tiles_ = {.height = height,
              .columns = columns,
              .tokens = tokens,
              .blocks = rows.offset_stride,
              .data = data_.data() + sizeof(float)};
    for (size_t t = 0; t < cut().count(); ++t) PackTile(rows, tiles_, t);
  }
  const ActivationTiles& tiles() const { return tiles_; }
  TokenTiles cut() const { return {tiles_.tokens, tiles_.height}; }

 private:
  std::vector<std::byte> data_;
  ActivationTiles tiles_;
};

DotArgs ArgsFor(const PackedMatrixView& matrix, const ActivationRows& x, size_t strips,
                size_t tokens, std::vector<float>& out) {
  DotArgs args;
  args.layout = matrix.layout;
  args.num_strips = strips;
  for (size_t s = 0; s < strips; ++s) {
    args.weights[s] = matrix.strip_weights(s);
    args.scales[s] = matrix.layout.format.quantized() ? matrix.strip_scales(s) : nullptr;
  }
  args.x = &x;
  args.tokens = tokens;
  // NaN: nothing may be added to what was there.
  out.assign((tokens - 1) * kDotStride + (kMaxStrips + 1) * kStripRows,
             std::numeric_limits<float>::quiet_NaN());
  auto address = reinterpret_cast<uintptr_t>(out.data());
  args.out = reinterpret_cast<float*>(RoundUp(address, kAlignment));
  return args;
}

// All rows of the padded strips, so that padding is seen to give 0.
std::vector<float> Compute(void (*dot)(const DotArgs&), const PackedMatrixView& matrix,
                           const ActivationRows& x, size_t first_token, size_t tokens,
                           const ActivationTiles* tiles = nullptr) {
  std::vector<float> out;
  DotArgs args = ArgsFor(matrix, x, matrix.layout.strips(), tokens, out);
  args.first_token = first_token;
  args.tiles = tiles;
  dot(args);
  std::vector<float> result;
  for (size_t t = 0; t < tokens; ++t) {
    const float* row = args.out + t * kDotStride;
    result.insert(result.end(), row, row + args.num_strips * kStripRows);
  }
  return result;
}

std::vector<ActivationFormat> ActivationsOf(WeightFormat format) {
  if (!format.quantized()) return {ActivationFormat::kFloat};
  return {ActivationFormat::kRow, ActivationFormat::kBlock};
}

// Scales of many magnitudes: with like ones nearly every float sum is exact, and one that is taken
// in another order or in other pieces does not show.
QuantizedMatrix MatrixOfManyScales(Random& random, WeightFormat format, size_t rows, size_t cols) {
  QuantizedMatrix matrix = test::RandomMatrix(random, format, rows, cols);
  for (float& scale : matrix.scales) scale = std::ldexp(scale, random.Integer(-6, 6));
  return matrix;
}

class DotTest : public testing::TestWithParam<std::tuple<WeightFormat, size_t>> {};

TEST_P(DotTest, EqualsReference) {
  const auto [format, cols] = GetParam();
  Random random;
  for (const size_t rows : {1, 16, 31, 33, 64}) {
    const PackedMatrix packed = *Pack(MatrixOfManyScales(random, format, rows, cols));
    for (const ActivationFormat activation : ActivationsOf(format)) {
      constexpr size_t kTokens = 20;
      const Rows x(random, activation, kTokens, cols);
      const std::vector<float> want = Compute(reference::Dot, packed.view(), x.rows(), 0, kTokens);
      const size_t width = packed.view().layout.strips() * kStripRows;
      for (const Kernels* kernels : AttainableKernels()) {
        for (const auto& [first, count] : std::vector<std::pair<size_t, size_t>>{{0, 1},
                                                                                 {1, 1},
                                                                                 {0, 2},
                                                                                 {1, 3},
                                                                                 {0, 4},
                                                                                 {0, 5},
                                                                                 {2, 6},
                                                                                 {0, 7},
                                                                                 {0, 8},
                                                                                 {2, 11},
                                                                                 {3, 12},
                                                                                 {0, 13},
                                                                                 {0, 16},
                                                                                 {0, kTokens}}) {
          const std::vector<float> got =
              Compute(kernels->dot, packed.view(), x.rows(), first, count);
          const std::vector<float> part(want.begin() + first * width,
                                        want.begin() + (first + count) * width);
          ASSERT_TRUE(Agrees(*kernels, got, part))
              << kernels->target << " " << Name(format) << " x " << Name(activation) << " [" << rows
              << ", " << cols << "], tokens " << first << "+" << count << ", differs at "
              << FirstDifference(got, part);
        }
      }
    }
  }
}

// One token takes more strips at once than several do.
TEST_P(DotTest, OneTokenOfManyStripsEqualsReference) {
  const auto [format, cols] = GetParam();
  Random random;
  for (const size_t rows : {80, 96, 97, 112, 128}) {
    const PackedMatrix packed = *Pack(MatrixOfManyScales(random, format, rows, cols));
    for (const ActivationFormat activation : ActivationsOf(format)) {
      const Rows x(random, activation, 2, cols);
      for (const size_t token : {0, 1}) {
        const std::vector<float> want = Compute(reference::Dot, packed.view(), x.rows(), token, 1);
        for (const Kernels* kernels : AttainableKernels()) {
          if (packed.view().layout.strips() > kernels->row_strips) continue;
          const std::vector<float> got = Compute(kernels->dot, packed.view(), x.rows(), token, 1);
          ASSERT_TRUE(Agrees(*kernels, got, want))
              << kernels->target << " " << Name(format) << " x " << Name(activation) << " [" << rows
              << ", " << cols << "], token " << token << ", differs at "
              << FirstDifference(got, want);
        }
      }
    }
  }
}

// Tiles of tokens: every height they come in, alone and as part of more; up to 23 tokens from
// packed weights, from 48 on over panels.
TEST_P(DotTest, TilesEqualReference) {
  const auto [format, cols] = GetParam();
  if (!format.quantized()) return;
  Random random;
  constexpr size_t kMost = 64;
  for (const size_t rows : {16, 33, 64}) {
    const PackedMatrix packed = *Pack(MatrixOfManyScales(random, format, rows, cols));
    const size_t width = packed.view().layout.strips() * kStripRows;
    for (const ActivationFormat activation : ActivationsOf(format)) {
      const Rows x(random, activation, kMost, cols);
      const std::vector<float> want = Compute(reference::Dot, packed.view(), x.rows(), 0, kMost);
      for (const Kernels* kernels : AttainableKernels()) {
        const size_t height = kernels->tile_height(format, activation);
        if (height == 0) continue;  // reads rows
        for (const size_t tokens : {2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 20, 23, 48, 49, 51, 64}) {
          const Tiles tiles(x.rows(), tokens, height, kernels->tile_columns);
          for (const size_t begin : {size_t{0}, tiles.cut().Begin(tiles.cut().count() - 1)}) {
            const std::vector<float> got = Compute(kernels->dot, packed.view(), x.rows(), begin,
                                                   tokens - begin, &tiles.tiles());
            const std::vector<float> part(want.begin() + begin * width,
                                          want.begin() + tokens * width);
            ASSERT_TRUE(Agrees(*kernels, got, part))
                << kernels->target << " " << Name(format) << " x " << Name(activation) << " ["
                << rows << ", " << cols << "], tokens " << begin << " to " << tokens
                << " in tiles of " << height << ", differs at " << FirstDifference(got, part);
          }
        }
      }
    }
  }
}

std::string DotTestName(const testing::TestParamInfo<DotTest::ParamType>& info) {
  std::string name = Name(std::get<0>(info.param)) + "_K" + std::to_string(std::get<1>(info.param));
  std::ranges::replace(name, ':', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Formats, DotTest,
                         testing::Combine(testing::ValuesIn(kWeightFormats),
                                          testing::Values(1, 15, 17, 31, 32, 33, 40, 63, 65, 100,
                                                          172, 257, 576, 700, 1536)),
                         DotTestName);

// The extremes of every integer: sums are exact however the instruction set multiplies bytes.
// Includes −128, which only a foreign file holds (CASES H4), and the pairs that saturate 16 bits
// (H5).
TEST(DotExtremes, SumsAreExact) {
  Random random;
  constexpr size_t kCols = 4096;
  for (const WeightType type : {WeightType::kInt8, WeightType::kInt4}) {
    const std::vector<int> weights =
        type == WeightType::kInt8 ? std::vector{-128, -127, -1, 127} : std::vector{-8, -7, 7};
    for (const int weight : weights) {
      for (const int activation : {-127, -1, 127}) {
        QuantizedMatrix matrix;
        matrix.format = {type, 0};
        matrix.rows = 16;
        matrix.cols = kCols;
        matrix.integers.assign(16 * kCols, static_cast<int8_t>(weight));
        matrix.scales.assign(16, 1.0f);
        const PackedMatrix packed = *Pack(matrix);
        Rows x(random, ActivationFormat::kRow, 1, kCols);
        for (size_t k = 0; k < kCols; ++k) x.value(0, k) = static_cast<int8_t>(activation);
        x.rows().scales[0] = 1.0f;
        for (size_t b = 0; b < kCols / 32; ++b) x.rows().offsets[b] = -8 * 32 * activation;
        x.rows().total_offset[0] = -8 * static_cast<int>(kCols) * activation;
        for (const Kernels* kernels : AttainableKernels()) {
          const std::vector<float> got = Compute(kernels->dot, packed.view(), x.rows(), 0, 1);
          for (const float y : got) {
            ASSERT_EQ(y, static_cast<float>(static_cast<int>(kCols) * weight * activation))
                << kernels->target << " weight " << weight << ", activation " << activation;
          }
        }
      }
    }
  }
}

// CASES H4 in its own numbers.
TEST(DotExtremes, Minus128TimesMinusOne) {
  Random random;
  QuantizedMatrix matrix;
  matrix.format = {WeightType::kInt8, 0};
  matrix.rows = 1;
  matrix.cols = 32;
  matrix.integers.assign(32, -128);
  matrix.scales = {1.0f};
  const PackedMatrix packed = *Pack(matrix);
  Rows x(random, ActivationFormat::kRow, 1, 32);
  for (size_t k = 0; k < 32; ++k) x.value(0, k) = -1;
  x.rows().scales[0] = 1.0f;
  x.rows().offsets[0] = 8 * 32;
  x.rows().total_offset[0] = 8 * 32;
  for (const Kernels* kernels : AttainableKernels()) {
    EXPECT_EQ(Compute(kernels->dot, packed.view(), x.rows(), 0, 1)[0], 4096.0f) << kernels->target;
  }
}

// K at the limit: offset sums pass 2^31 on the way and come back.
TEST(DotExtremes, LargestK) {
  Random random;
  QuantizedMatrix matrix;
  matrix.format = {WeightType::kInt8, 0};
  matrix.rows = 1;
  matrix.cols = kMaxK;
  matrix.integers.assign(kMaxK, 127);
  matrix.scales = {1.0f};
  const PackedMatrix packed = *Pack(matrix);
  Rows x(random, ActivationFormat::kRow, 1, kMaxK);
  for (size_t k = 0; k < kMaxK; ++k) x.value(0, k) = 127;
  x.rows().scales[0] = 1.0f;
  for (size_t b = 0; b < kMaxK / 32; ++b) x.rows().offsets[b] = -8 * 32 * 127;
  x.rows().total_offset[0] = -8 * static_cast<int>(kMaxK) * 127;
  for (const Kernels* kernels : AttainableKernels()) {
    EXPECT_EQ(Compute(kernels->dot, packed.view(), x.rows(), 0, 1)[0], 131072.0f * 127 * 127)
        << kernels->target;
  }
}

}  // namespace
}  // namespace sluice
