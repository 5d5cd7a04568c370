#include "src/base/stalls.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace sluice {
namespace {

constexpr int64_t kMs = 1'000'000;

class StallsTest : public ::testing::Test {
 protected:
  StallsTest() { stalls_.Note(0, 0); }

  bool Alone(int64_t now) {
    return stalls_.Alone([&] {
      ++asked_;
      return now;
    });
  }
  // How long the caller stays alone after a stall that ends at `end`.
  int64_t TimeAlone(int64_t end) {
    int64_t now = end;
    while (Alone(now)) now += kMs;
    return now - end;
  }
  // Calls without a stall.
  void RunWell(int64_t from, int64_t to) {
    for (int64_t now = from; now <= to; now += kMs) stalls_.Note(now, now);
  }

  Stalls stalls_;
  int asked_ = 0;
};

TEST_F(StallsTest, ShortWaitsAreNoStalls) {
  for (int64_t call = 1; call <= 100; ++call) {
    stalls_.Note(call * 2 * kMs, call * 2 * kMs + kMs);
    EXPECT_FALSE(Alone(call * 2 * kMs + kMs));
  }
  EXPECT_EQ(asked_, 0) << "the clock costs something";
}

// Slow cores that end long work later than the caller.
TEST_F(StallsTest, WaitsShorterThanTheWorkAreNoStalls) {
  stalls_.Note(90 * kMs, 179 * kMs);
  EXPECT_FALSE(Alone(179 * kMs));
}

TEST_F(StallsTest, AStallIsFollowedByAsMuchTimeAlone) {
  stalls_.Note(100 * kMs, 100 * kMs);
  stalls_.Note(101 * kMs, 105 * kMs);
  EXPECT_TRUE(Alone(105 * kMs));
  EXPECT_TRUE(Alone(109 * kMs - 1));
  EXPECT_FALSE(Alone(109 * kMs));
  const int asked = asked_;
  EXPECT_FALSE(Alone(109 * kMs - 1)) << "over once and for all";
  EXPECT_EQ(asked_, asked);
}

TEST_F(StallsTest, StallsThatFollowOneAnotherAreFollowedByMore) {
  int64_t now = 0;
  for (const int64_t times : {1, 2, 4, 8, 8, 8}) {
    stalls_.Note(now, now + 4 * kMs);
    EXPECT_EQ(TimeAlone(now + 4 * kMs), times * 4 * kMs);
    now += (4 + times * 4) * kMs;
  }
  // Until it goes well for as long as the caller was alone.
  RunWell(now, now + 40 * kMs);
  now += 40 * kMs;
  stalls_.Note(now, now + 4 * kMs);
  EXPECT_EQ(TimeAlone(now + 4 * kMs), 4 * kMs);
}

// The process was stopped, not a thread.
TEST_F(StallsTest, TheTimeAloneIsLimited) {
  stalls_.Note(0, 600'000 * kMs);
  EXPECT_EQ(TimeAlone(600'000 * kMs), 100 * kMs);
}

TEST_F(StallsTest, TheFirstCallIsNone) {
  Stalls stalls;
  stalls.Note(0, 100 * kMs);
  EXPECT_FALSE(stalls.Alone([] { return 100 * kMs; }));
}

TEST_F(StallsTest, NeverAloneIsNever) {
  stalls_.NeverAlone();
  stalls_.Note(kMs, 100 * kMs);
  EXPECT_FALSE(Alone(100 * kMs));
}

// Where every call stalls, what is lost comes to one part in nine.
TEST_F(StallsTest, LittleOfTheTimeIsLost) {
  int64_t now = 0;
  int64_t lost = 0;
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
