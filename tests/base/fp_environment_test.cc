// A caller that flushes subnormals and rounds upwards gets the contract's results, in every thread,
// and its own environment back.
#include "src/base/fp_environment.h"

#include <gtest/gtest.h>
#include <pthreadpool.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/base/thread_pool.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace sluice {
namespace {

// The control register of the calling thread, without the flags that arithmetic leaves in it.
uint64_t Controls() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3Fu;
#elif defined(__aarch64__)
  uint64_t w;
  asm volatile("mrs %0, fpcr" : "=r"(w));
  return w;
#else
  uint32_t w;
  asm volatile("vmrs %0, fpscr" : "=r"(w));
  return w & 0x07FF0000u;
#endif
}

void SetControls(uint64_t w) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<uint32_t>(w));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" : : "r"(w));
#else
  asm volatile("vmsr fpscr, %0" : : "r"(static_cast<uint32_t>(w)));
#endif
}

// Flush subnormals, round upwards.
uint64_t Odd() {
#if defined(__x86_64__)
  return 0x1F80u | 0x8000u | 0x0040u | 0x4000u;  // FTZ, DAZ, RC = up
#else
  return (uint64_t{1} << 24) | (uint64_t{1} << 22);  // FZ, RMode = up
#endif
}

// The caller's environment for one test.
class OddEnvironment {
 public:
  OddEnvironment() : before_(Controls()) { SetControls(Odd()); }
  ~OddEnvironment() { SetControls(before_); }
  OddEnvironment(const OddEnvironment&) = delete;
  OddEnvironment& operator=(const OddEnvironment&) = delete;

 private:
  uint64_t before_;
};

// volatile: computed here and now, not by the compiler.
bool SubnormalsSurvive() {
  volatile float tiny = std::numeric_limits<float>::min();
  volatile float half = 0.5f;
  volatile float subnormal = tiny * half;
  volatile float twice = subnormal * 2.0f;
  return subnormal != 0.0f && twice == tiny;
}

bool RoundsToNearest() {
  volatile float one = 1.0f;
  volatile float little = 0x1p-30f;
  volatile float up = one + little;
  volatile float down = -one - little;
  return up == 1.0f && down == -1.0f;
}

TEST(FpEnvironment, TheTestCanTellTheDifference) {
  EXPECT_TRUE(SubnormalsSurvive() && RoundsToNearest());
  const OddEnvironment odd;
  EXPECT_FALSE(SubnormalsSurvive());
  EXPECT_FALSE(RoundsToNearest());
}

TEST(FpEnvironment, IsTheContractsAndThenTheCallersAgain) {
  const OddEnvironment odd;
  {
    const FpEnvironment environment;
    EXPECT_TRUE(SubnormalsSurvive());
    EXPECT_TRUE(RoundsToNearest());
    {
      const FpEnvironment nested;
      EXPECT_TRUE(SubnormalsSurvive());
    }
    EXPECT_TRUE(SubnormalsSurvive());
  }
  EXPECT_EQ(Controls(), Odd());
}

TEST(FpEnvironment, LeavesADefaultEnvironmentAlone) {
  const uint64_t before = Controls();
  {
    const FpEnvironment environment;
    EXPECT_EQ(Controls(), before);
  }
  EXPECT_EQ(Controls(), before);
}

// Division by zero must not trap in a kernel even if the caller wants traps elsewhere.
#if defined(__x86_64__)
TEST(FpEnvironment, MasksExceptions) {
  const uint64_t before = Controls();
  SetControls(0);  // everything unmasked
  bool infinite = false;
  {
    const FpEnvironment environment;
    volatile float zero = 0.0f;
    volatile float quotient = 1.0f / zero;
    infinite = std::isinf(quotient);
  }
  const uint64_t after = Controls();
  SetControls(before);
  EXPECT_TRUE(infinite);
  EXPECT_EQ(after, 0u);
}
#endif

TEST(FpEnvironment, ParallelForOnTheCallingThread) {
  const OddEnvironment odd;
  bool right = false;
  ParallelFor(nullptr, 1, 1,
              [&](size_t, size_t) { right = SubnormalsSurvive() && RoundsToNearest(); });
  EXPECT_TRUE(right);
  EXPECT_EQ(Controls(), Odd());
}

constexpr size_t kThreads = 4;

// One call of `body` on each of the pool's threads: each waits until all have come.
template <class Body>
void OnEveryThread(const ThreadPool& pool, Body body) {
  struct Context {
    Body body;
    std::barrier<> all;
  } context = {body, std::barrier<>(kThreads)};
  pthreadpool_parallelize_1d(
      PoolHandle(&pool),
      [](void* p, size_t) {
        auto* c = static_cast<Context*>(p);
        c->all.arrive_and_wait();
        c->body();
      },
      &context, kThreads, /*flags=*/0);
}

TEST(FpEnvironment, ParallelForInEveryWorkerThread) {
  const ThreadPool pool = ThreadPool::Create(kThreads).value();
  const uint64_t before = Controls();
  OnEveryThread(pool, [] { SetControls(Odd()); });

  std::atomic<int> right = 0;
  std::barrier all(kThreads);
  ParallelFor(&pool, kThreads, 1, [&](size_t, size_t) {
    all.arrive_and_wait();
    if (SubnormalsSurvive() && RoundsToNearest()) ++right;
  });
  EXPECT_EQ(right, static_cast<int>(kThreads));

  std::atomic<int> restored = 0;
  OnEveryThread(pool, [&] {
    if (Controls() == Odd()) ++restored;
  });
  EXPECT_EQ(restored, static_cast<int>(kThreads)) << "a worker lost its own environment";
  SetControls(before);  // the calling thread is one of the pool's
}

}  // namespace
}  // namespace sluice
