// The cost model: a pure function of shape, tokens, threads and cache.
#include "src/backends/plan.h"

#include <gtest/gtest.h>

#include "src/kernels/kernels.h"

namespace sluice {
namespace {

PlanInput SmolLm2(size_t tokens, size_t threads) {
  return {.tokens = tokens,
          .threads = threads,
          .d_model = 576,
          .d_ff = 1536,
          .weight_bytes = 1'492'992,
          .level2_bytes = size_t{2} << 20};
}

TEST(Plan, OneThreadIsNotParallel) {
  EXPECT_FALSE(PlanPass(SmolLm2(1, 1)).parallel);
  EXPECT_FALSE(PlanPass(SmolLm2(512, 1)).parallel);
}

TEST(Plan, SmallBlocksStayOnTheCallersThread) {
  PlanInput toy = {.tokens = 1, .threads = 4, .d_model = 64, .d_ff = 172, .weight_bytes = 20'000};
  EXPECT_FALSE(PlanPass(toy).parallel);
  toy.tokens = 256;  // 17 Mop
  EXPECT_TRUE(PlanPass(toy).parallel);
  EXPECT_TRUE(PlanPass(SmolLm2(1, 2)).parallel);
}

TEST(Plan, ChunksFitTheSecondLevelCache) {
  PlanInput input = SmolLm2(512, 1);
  EXPECT_EQ(PlanPass(input).chunk_tokens, kMaxDotTokens);
  input.d_model = 4096;
  input.d_ff = 11008;
  input.level2_bytes = size_t{1} << 20;
  EXPECT_EQ(PlanPass(input).chunk_tokens, (size_t{1} << 19) / (11008 * 5 / 4));
  input.level2_bytes = size_t{128} << 10;
  EXPECT_EQ(PlanPass(input).chunk_tokens, 24u);  // the least
  input.level2_bytes = 0;
  EXPECT_GE(PlanPass(input).chunk_tokens, 24u);  // unknown
}

TEST(Plan, PiecesAreEnoughForAllThreads) {
  for (const size_t threads : {1, 2, 3, 4, 16}) {
    for (const size_t tokens : {1, 7, 64, 512}) {
      const PassPlan plan = PlanPass(SmolLm2(tokens, threads));
      EXPECT_GE(plan.unit_grain, 1u);
      EXPECT_GE(plan.group_grain, 1u);
      EXPECT_GE(plan.token_grain, 1u);
      EXPECT_GE(48 / plan.unit_grain, threads);  // 1536 / 32
    }
  }
}

TEST(Plan, StripsAreMultipliedTogether) {
  PlanInput input = SmolLm2(1, 1);
  EXPECT_EQ(PlanPass(input).unit_strips, 2u);
  EXPECT_EQ(PlanPass(input).group_strips, 4u);
  input.strips = kMaxStrips;
  EXPECT_EQ(PlanPass(input).unit_strips, 4u);
  EXPECT_EQ(PlanPass(input).group_strips, 8u);
  // Of 36 strips one thread of two would take 24 by eights, 20 by fours; by sixes each takes 18.
  input.threads = 2;
  EXPECT_EQ(PlanPass(input).unit_strips, 4u);
  EXPECT_EQ(PlanPass(input).group_strips, 6u);
  // Of 40 one takes 24 by eights and by sixes, 20 by fours.
  input.d_model = 640;
  EXPECT_EQ(PlanPass(input).group_strips, 4u);
  input.d_model = 2048;
  EXPECT_EQ(PlanPass(input).group_strips, 8u);
  // Fewer strips than threads: no thread has less to do for smaller pieces than the least.
  input = {.tokens = 1, .threads = 16, .d_model = 16, .d_ff = 16, .strips = kMaxStrips};
  EXPECT_EQ(PlanPass(input).unit_strips, 4u);
  EXPECT_EQ(PlanPass(input).group_strips, 8u);
}

TEST(Plan, AnyInputGivesAPlan) {
  const PassPlan plan = PlanPass({.tokens = 0, .threads = 1, .d_model = 1, .d_ff = 1});
  EXPECT_FALSE(plan.parallel);
  EXPECT_GE(plan.chunk_tokens, 1u);
}

}  // namespace
}  // namespace sluice
