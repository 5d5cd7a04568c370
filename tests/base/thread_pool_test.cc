#include "src/base/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <ctime>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/default_threads.h"

namespace sluice {
namespace {

// How often each index was visited, and whether every range was as promised.
struct Coverage {
  explicit Coverage(size_t n) : visits(n) {}
  std::vector<std::atomic<int>> visits;
  std::atomic<bool> ranges_right = true;

  void Visit(size_t begin, size_t end, size_t grain) {
    if (begin >= end || end > visits.size() || begin % grain != 0 || end - begin > grain ||
        (end - begin < grain && end != visits.size())) {
      ranges_right = false;
      return;
    }
    for (size_t i = begin; i < end; ++i) ++visits[i];
  }
  bool ExactlyOnce() const {
    return ranges_right &&
           std::ranges::all_of(visits, [](const std::atomic<int>& v) { return v == 1; });
  }
};

void ExpectCovers(const ThreadPool* pool) {
  for (const size_t n : {0, 1, 3, 64, 1000}) {
    for (const size_t grain : {1, 3, 16, 1000}) {
      Coverage coverage(n);
      ParallelFor(pool, n, grain,
                  [&](size_t begin, size_t end) { coverage.Visit(begin, end, grain); });
      EXPECT_TRUE(coverage.ExactlyOnce())
          << ThreadCount(pool) << " threads, n " << n << ", grain " << grain;
    }
  }
}

TEST(ParallelFor, CoversEachIndexOnceOnTheCallingThread) { ExpectCovers(nullptr); }

TEST(ParallelFor, CoversEachIndexOnceOnAnyNumberOfThreads) {
  for (size_t threads = 1; threads <= 8; ++threads) {
    const ThreadPool pool = ThreadPool::Create(threads).value();
    EXPECT_EQ(pool.threads(), threads);
    EXPECT_EQ(ThreadCount(&pool), threads);
    ExpectCovers(&pool);
  }
}

TEST(ParallelFor, AGrainLargerThanAnyRangeIsOneRange) {
  const ThreadPool pool = ThreadPool::Create(2).value();
  int calls = 0;
  ParallelFor(&pool, 10, std::numeric_limits<size_t>::max(), [&](size_t begin, size_t end) {
    ++calls;
    EXPECT_EQ(begin, 0u);
    EXPECT_EQ(end, 10u);
  });
  EXPECT_EQ(calls, 1);
}

TEST(ParallelFor, WithoutAPoolOrForOneRangeStaysOnTheCallingThread) {
  const ThreadPool pool = ThreadPool::Create(4).value();
  const std::thread::id self = std::this_thread::get_id();
  for (const auto& [p, n] : {std::pair<const ThreadPool*, size_t>{nullptr, 100}, {&pool, 8}}) {
    std::vector<size_t> order;
    ParallelFor(p, n, 8, [&](size_t begin, size_t) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      order.push_back(begin);
    });
    EXPECT_TRUE(std::ranges::is_sorted(order)) << "ranges in order";
  }
}

// Each waits for all the others, so this ends only if all threads take part.
TEST(ParallelFor, UsesAllThreadsAtOnce) {
  for (const size_t threads : {2, 3, 8}) {
    const ThreadPool pool = ThreadPool::Create(threads).value();
    std::barrier all(static_cast<ptrdiff_t>(threads));
    std::mutex mutex;
    std::set<std::thread::id> ids;
    ParallelFor(&pool, threads, 1, [&](size_t, size_t) {
      all.arrive_and_wait();
      const std::scoped_lock lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(ids.size(), threads);
    EXPECT_TRUE(ids.contains(std::this_thread::get_id()));
  }
}

TEST(ParallelFor, WhatThreadsWroteIsThereWhenItReturns) {
  const ThreadPool pool = ThreadPool::Create(4).value();
  std::vector<size_t> values(10000);
  for (size_t round = 1; round <= 5; ++round) {
    ParallelFor(&pool, values.size(), 16, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) values[i] += i * round;
    });
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], i * round * (round + 1) / 2);
    }
  }
}

// H21. Each idle thread would spin for milliseconds after each call, the second of which waits for
// them all. Later calls may stay on the calling thread.
TEST(ParallelFor, H21MoreThreadsThanCpusDoNotSpin) {
  const size_t threads = DefaultThreads() + 60;
  const auto cpu_seconds = [] {
    return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
  };
  double least = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < 4; ++attempt) {
    const ThreadPool pool = ThreadPool::Create(threads).value();
    const double start = cpu_seconds();
    for (int call = 0; call < 2; ++call) ParallelFor(&pool, 1000, 1, [](size_t, size_t) {});
    least = std::min(least, cpu_seconds() - start);
  }
  EXPECT_LT(least, 0.5e-3 * static_cast<double>(threads));
}

// A thread that is not running when the caller has nothing left to do: here it sleeps.
void Stall(const ThreadPool& pool) {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> asleep = false;
  ParallelFor(&pool, 2, 1, [&](size_t, size_t) {
    if (std::this_thread::get_id() != caller) {
      asleep = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } else {
      // It may be alone already.
      const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      while (!asleep && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    }
  });
}

size_t ThreadsOf(const ThreadPool& pool) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  ParallelFor(&pool, 64, 1, [&](size_t, size_t) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    const std::scoped_lock lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  return ids.size();
}

// On a busy machine a call waits for a slice of time of another program, a thousand times as long
// as it takes. Whatever this machine does meanwhile, one of the attempts must see it.
TEST(ParallelFor, AfterAStallTheCallerWorksAloneForAWhile) {
  const ThreadPool pool = ThreadPool::Create(2).value();
  bool alone = false;
  for (int attempt = 0; attempt < 50 && !alone; ++attempt) {
    while (ThreadsOf(pool) != 2) {
    }
    Stall(pool);
    alone = ThreadsOf(pool) == 1;
  }
  EXPECT_TRUE(alone);
  while (ThreadsOf(pool) != 2) {
  }
}

// A long call is alone for its first ranges only.
TEST(ParallelFor, AfterAStallTheRestOfALongCallIsSharedAgain) {
  const ThreadPool pool = ThreadPool::Create(2).value();
  const std::thread::id caller = std::this_thread::get_id();
  bool both = false;
  for (int attempt = 0; attempt < 50 && !both; ++attempt) {
    while (ThreadsOf(pool) != 2) {
    }
    Stall(pool);
    std::mutex mutex;
    std::vector<std::thread::id> ran(100);
    Coverage coverage(1000);
    ParallelFor(&pool, 1000, 10, [&](size_t begin, size_t end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      coverage.Visit(begin, end, 10);
      const std::scoped_lock lock(mutex);
      ran[begin / 10] = std::this_thread::get_id();
    });
    ASSERT_TRUE(coverage.ExactlyOnce());
    const auto others = std::ranges::count_if(ran, [&](auto id) { return id != caller; });
    both = ran[0] == caller && others != 0 && others < 45;
  }
  EXPECT_TRUE(both);
}

TEST(ThreadPool, ZeroMeansTheDefault) {
  EXPECT_EQ(ThreadPool::Create(0).value().threads(), DefaultThreads());
}

TEST(ThreadPool, MovesKeepTheThreads) {
  ThreadPool pool = ThreadPool::Create(2).value();
  ThreadPool moved = std::move(pool);
  EXPECT_EQ(moved.threads(), 2u);
  moved = ThreadPool::Create(3).value();
  EXPECT_EQ(moved.threads(), 3u);
  ExpectCovers(&moved);
}

TEST(ThreadPool, TooManyThreadsAreAnError) {
  for (const size_t threads : {size_t{1025}, std::numeric_limits<size_t>::max()}) {
    const auto pool = ThreadPool::Create(threads);
    ASSERT_FALSE(pool);
    EXPECT_EQ(pool.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(pool.error().message, testing::AllOf(testing::HasSubstr(std::to_string(threads)),
                                                     testing::HasSubstr("1024")));
  }
}

}  // namespace
}  // namespace sluice
