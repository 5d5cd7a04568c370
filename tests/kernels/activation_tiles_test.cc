// How tokens are cut into tiles, and where a tile holds what.
#include "src/kernels/activation_tiles.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace sluice {
namespace {

TEST(TokenTiles, AreFewAndOfLikeHeight) {
  for (size_t height = 1; height <= 12; ++height) {
    for (size_t tokens = 1; tokens <= 300; ++tokens) {
      const TokenTiles cut(tokens, height);
      ASSERT_EQ(cut.count(), (tokens + height - 1) / height);
      ASSERT_EQ(cut.Begin(0), 0u);
      ASSERT_EQ(cut.Begin(cut.count()), tokens);
      for (size_t tile = 0; tile < cut.count(); ++tile) {
        const size_t here = cut.Begin(tile + 1) - cut.Begin(tile);
        ASSERT_LE(here, height);
        ASSERT_GE(here, tokens / cut.count());
        ASSERT_EQ(cut.IndexOf(cut.Begin(tile)), tile) << tokens << " by " << height;
      }
      ASSERT_EQ(cut.IndexOf(tokens), cut.count());
    }
  }
}

TEST(TokenTiles, OfNoTokensAreNone) { EXPECT_EQ(TokenTiles(0, 6).count(), 0u); }

class ActivationTilesTest : public testing::TestWithParam<size_t> {};

// 13 tokens of 96 columns in tiles of at most 5: 5 + 4 + 4.
TEST_P(ActivationTilesTest, HoldColumnsOfEachTokenSideBySide) {
  const size_t columns = GetParam();
  constexpr size_t kTokens = 13;
  constexpr size_t kBlocks = 3;
  std::vector<int8_t> values(kTokens * kBlocks * kActivationBlock);
  std::vector<float> scales(kTokens * kBlocks);
  std::vector<int32_t> offsets(kTokens * kBlocks);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int8_t>(i * 7 % 251);
  std::iota(scales.begin(), scales.end(), 0.5f);
  std::iota(offsets.begin(), offsets.end(), 1000);
  const ActivationRows rows = {.format = ActivationFormat::kBlock,
                               .cols = kBlocks * kActivationBlock,
                               .values = values.data(),
                               .value_stride = kBlocks * kActivationBlock,
                               .scales = scales.data(),
                               .scale_stride = kBlocks,
                               .offsets = offsets.data(),
                               .offset_stride = kBlocks};
  std::vector<std::byte> data(TilesBytes(kTokens, rows));
  EXPECT_EQ(data.size(), kTokens * kBlocks * 40);
  const ActivationTiles tiles = {
      .height = 5, .columns = columns, .tokens = kTokens, .blocks = kBlocks, .data = data.data()};
  for (size_t tile = 0; tile < 3; ++tile) PackTile(rows, tiles, tile);
  size_t begin = 0;
  for (const size_t height : {5, 4, 4}) {
    for (size_t b = 0; b < kBlocks; ++b) {
      const std::byte* block = data.data() + begin * kBlocks * 40 + b * height * 40;
      for (size_t t = 0; t < height; ++t) {
        const size_t row = begin + t;
        for (size_t k = 0; k < kActivationBlock; ++k) {
          const auto got =
              static_cast<int8_t>(block[(k / columns * height + t) * columns + k % columns]);
          ASSERT_EQ(got, values[(row * kBlocks + b) * kActivationBlock + k])
              << "token " << row << ", column " << b * kActivationBlock + k;
        }
        float scale;
        std::memcpy(&scale, block + height * 32 + t * 4, 4);
        EXPECT_EQ(scale, scales[row * kBlocks + b]);
        int32_t offset;
        std::memcpy(&offset, block + height * 36 + t * 4, 4);
        EXPECT_EQ(offset, offsets[row * kBlocks + b]);
      }
    }
    begin += height;
  }
}

INSTANTIATE_TEST_SUITE_P(Columns, ActivationTilesTest, testing::Values(4, 8));

}  // namespace
}  // namespace sluice
