#include "src/base/stalls.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace sluice {
namespace {

constexpr int64_t kMs = 1'000'000;

class StallsTest : public ::testing::Test {
 protected:
  bool Alone(int64_t now) {
    return stalls_.Alone([&] {
      ++asked_;
      return now;
    });
  }
  Stalls stalls_;
  int asked_ = 0;
};

TEST_F(StallsTest, ShortWaitsAreNoStalls) {
  stalls_.Note(0, 0);
  for (int64_t call = 1; call <= 100; ++call) {
    stalls_.Note(call * 2 * kMs, call * 2 * kMs + kMs);
    EXPECT_FALSE(Alone(call * 2 * kMs + kMs));
  }
  EXPECT_EQ(asked_, 0) << "the clock costs something";
}

// Slow cores that end long work later than the caller.
TEST_F(StallsTest, WaitsShorterThanTheWorkAreNoStalls) {
  stalls_.Note(0, 0);
  stalls_.Note(100 * kMs, 199 * kMs);
  EXPECT_FALSE(Alone(199 * kMs));
}

TEST_F(StallsTest, AStallIsFollowedByTimeAloneInProportion) {
  stalls_.Note(0, 100 * kMs);
  stalls_.Note(101 * kMs, 105 * kMs);
  EXPECT_TRUE(Alone(105 * kMs));
  EXPECT_TRUE(Alone((105 + 8 * 4) * kMs - 1));
  EXPECT_FALSE(Alone((105 + 8 * 4) * kMs));
  const int asked = asked_;
  EXPECT_FALSE(Alone((105 + 8 * 4) * kMs - 1)) << "over once and for all";
  EXPECT_EQ(asked_, asked);
}

// The first call has none before it to be compared with.
TEST_F(StallsTest, TheFirstCallIsNone) {
  stalls_.Note(1000 * kMs, 1100 * kMs);
  EXPECT_FALSE(Alone(1100 * kMs));
}

// A steady stream of stalls: what is lost stays one part in nine.
TEST_F(StallsTest, LittleOfTheTimeIsLost) {
  int64_t now = 0;
  int64_t lost = 0;
  stalls_.Note(now, now);
  while (now < 10'000 * kMs) {
    if (Alone(now)) {
      now += kMs;
      continue;
    }
    stalls_.Note(now + 30'000, now + 32 * kMs);
    now += 32 * kMs;
    lost += 32 * kMs;
  }
  EXPECT_LT(lost, now / 8);
}

}  // namespace
}  // namespace sluice
