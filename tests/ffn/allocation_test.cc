// Forward allocates nothing, in any thread.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <vector>

#include "tests/support/random_block.h"
#include "tests/support/run_block.h"
#include "tests/support/seed.h"

namespace {
std::atomic<long> allocations = 0;
}  // namespace

// The C library's allocator is counted, so that C code (the thread pool) is seen too. GoogleTest's
// own allocations fall outside the measured stretch.
extern "C" void* __libc_malloc(size_t bytes);
extern "C" void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}

namespace sluice {
namespace {

TEST(Allocation, CounterCounts) {
  const long before = allocations;
  const std::vector<int> v(10);
  EXPECT_GT(allocations, before);
}

TEST(Allocation, ForwardAllocatesNothing) {
  test::Random random;
  for (const WeightFormat format : kWeightFormats) {
    for (const size_t threads : {1, 3}) {
      test::BlockOptions options;
      options.formats = test::AllOf(format);
      const test::RandomBlock block = test::MakeRandomBlock(random, 64, 96, options);
      ThreadPool pool = *ThreadPool::Create(threads);
      const Ffn ffn = *CreateFfn(block.view, {.pool = &pool});
      Workspace workspace = *ffn.Plan(300);
      std::vector<float> x = test::RandomVector(random, 300 * 64);
      std::vector<float> y(x.size());
      for (const size_t tokens : {1, 2, 17, 300}) {
        const long before = allocations;
        const Status status =
            ffn.Forward({x.data(), tokens, 64}, {y.data(), tokens, 64}, workspace);
        const long after = allocations;
        ASSERT_TRUE(status);
        EXPECT_EQ(after - before, 0) << Name(format) << ", " << threads << " threads, " << tokens;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
