// Formats within a budget: against all combinations, on budgets that are met and that cannot be.
#include "quant/quantizer/choose_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/seed.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

MatrixOptions Options(std::vector<FormatOption> options) {
  return {0, Matrix::kUp, /*weights=*/80, std::move(options)};
}

FormatOption Option(uint64_t bytes, double loss) { return {{}, bytes, loss}; }

FormatChoice Choose(const std::vector<MatrixOptions>& matrices, const FormatBudget& budget) {
  const auto choice = ChooseFormats(matrices, budget);
  EXPECT_TRUE(choice.has_value()) << choice.error().message;
  return choice.value_or(FormatChoice{});
}

TEST(ChooseFormats, GivesBytesToTheMatrixThatGainsMost) {
  const std::vector<MatrixOptions> matrices = {Options({Option(40, 1), Option(80, 0.9)}),
                                               Options({Option(40, 1), Option(80, 0.1)})};
  const FormatChoice choice = Choose(matrices, {.bits = 6});
  EXPECT_EQ(choice.picked, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(choice.bytes, 120u);
  EXPECT_DOUBLE_EQ(choice.bits, 6);
  EXPECT_DOUBLE_EQ(choice.loss, 1.1);
}

TEST(ChooseFormats, PassesOverOptionsThatCostMoreAndGiveNoLess) {
  const std::vector<MatrixOptions> matrices = {
      Options({Option(50, 1), Option(40, 0.5), Option(60, 0.5), Option(80, 0.2)})};
  EXPECT_EQ(Choose(matrices, {.bytes = 60}).picked, std::vector<size_t>{1});
  EXPECT_EQ(Choose(matrices, {.bytes = 80}).picked, std::vector<size_t>{3});
}

TEST(ChooseFormats, TakesTheFewestBytesForALoss) {
  const std::vector<MatrixOptions> matrices = {Options({Option(40, 1), Option(80, 0.5)}),
                                               Options({Option(40, 1), Option(80, 0.1)})};
  EXPECT_EQ(Choose(matrices, {.loss = 1.2}).bytes, 120u);
  EXPECT_EQ(Choose(matrices, {.loss = 2.5}).bytes, 80u);
  EXPECT_EQ(Choose(matrices, {.loss = 0.7}).bytes, 160u);
}

TEST(ChooseFormats, NamesBothFiguresOfABudgetThatCannotBeMet) {
  const std::vector<MatrixOptions> matrices = {Options({Option(40, 1), Option(80, 0.5)})};
  const auto small = ChooseFormats(matrices, {.bits = 3.5});
  ASSERT_FALSE(small.has_value());
  EXPECT_THAT(small.error().message, HasSubstr("40 bytes, 4 bits"));
  const auto good = ChooseFormats(matrices, {.loss = 0.25});
  ASSERT_FALSE(good.has_value());
  EXPECT_THAT(good.error().message, HasSubstr("0.25"));
  EXPECT_THAT(good.error().message, HasSubstr("0.5"));
}

// The least loss of all combinations that fit.
double BestOfAll(const std::vector<MatrixOptions>& matrices, uint64_t bytes, size_t from = 0) {
  if (from == matrices.size()) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (const FormatOption& option : matrices[from].options) {
    if (option.bytes > bytes) continue;
    best = std::min(best, option.loss + BestOfAll(matrices, bytes - option.bytes, from + 1));
  }
  return best;
}

TEST(ChooseFormats, IsWithinOneMatrixOfTheBestCombination) {
  test::Random random;
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<MatrixOptions> matrices;
    double largest = 0;
    for (int m = 0; m < 6; ++m) {
      const double scale = std::exp(random.Normal());
      // Loss falls to a quarter for each bit more, as it does.
      matrices.push_back(
          Options({Option(40, scale), Option(45, scale * 0.7), Option(80, scale * 0.005)}));
      largest = std::max(largest, scale);
    }
    for (const uint64_t bytes : {250, 300, 330, 400, 480}) {
      const FormatChoice choice = Choose(matrices, {.bytes = bytes});
      EXPECT_LE(choice.bytes, bytes);
      const double best = BestOfAll(matrices, bytes);
      EXPECT_GE(choice.loss, best - 1e-12);
      EXPECT_LE(choice.loss, best + largest);
    }
  }
}

}  // namespace
}  // namespace sluice
