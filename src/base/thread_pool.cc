#include "src/base/thread_pool.h"

#include <pthreadpool.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "src/base/aligned_buffer.h"
#include "src/base/default_threads.h"
#include "src/base/fp_environment.h"
#include "src/base/status.h"

namespace sluice {

ThreadPool::Impl::~Impl() { pthreadpool_destroy(pool_); }

ThreadPool::ThreadPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ThreadPool::ThreadPool(ThreadPool&&) noexcept = default;
ThreadPool& ThreadPool::operator=(ThreadPool&&) noexcept = default;
ThreadPool::~ThreadPool() = default;

Expected<ThreadPool> ThreadPool::Create(size_t threads) {
  constexpr size_t kMaxThreads = 1024;
  if (threads > kMaxThreads) {
    return Fail(ErrorCode::kInvalidArgument, "{} threads: at most {} are supported", threads,
                kMaxThreads);
  }
  pthreadpool* pool = pthreadpool_create(threads == 0 ? DefaultThreads() : threads);
  if (pool == nullptr) return Fail(ErrorCode::kIo, "cannot create a pool of {} threads", threads);
  return ThreadPool(std::make_unique<Impl>(pool, threads > CpusFor(AffinityCpus(), "")));
}

size_t ThreadPool::threads() const { return pthreadpool_get_threads_count(impl_->get()); }

namespace internal {
namespace {

// One for each thread, told apart by their addresses.
thread_local char this_thread;

int64_t Now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Range {
  TaskFn task;
  void* context;
  size_t first = 0;  // where pthreadpool's numbers start
  // For Stalls: when the caller last ended a range. It gets those before `late` first, so that
  // their ends need not be noted.
  size_t late = 0;
  const char* caller = nullptr;
  int64_t idle = INT64_MAX;
};

void Run(const Range& range, size_t begin, size_t end) {
  const FpEnvironment environment;
  range.task(range.context, begin, end);
}

void RunRange(Range* range, size_t begin, size_t count) {
  Run(*range, range->first + begin, range->first + begin + count);
  if (begin + count >= range->late && range->caller == &this_thread) range->idle = Now();
}

// From range.first to n.
void RunTogether(const ThreadPool& pool, Range& range, size_t n, size_t grain) {
  // pthreadpool gives each thread a part, in order; the caller is the first. Its very last range
  // may be taken by another, hence the one before it.
  const size_t part = DivCeil(DivCeil(n - range.first, grain), pool.threads());
  range.late = (part - (part > 1 ? 1 : 0)) * grain;
  range.caller = &this_thread;
  // Threads that are done spin for a while, so that the next call finds them awake. Where they are
  // more than the CPUs they would spin in each other's way, for milliseconds each.
  const uint32_t flags = pool.impl()->crowded() ? PTHREADPOOL_FLAG_YIELD_WORKERS : 0;
  pthreadpool_parallelize_1d_tile_1d(pool.impl()->get(),
                                     reinterpret_cast<pthreadpool_task_1d_tile_1d_t>(RunRange),
                                     &range, n - range.first, grain, flags);
  const int64_t end = Now();
  pool.impl()->stalls().Note(std::min(range.idle, end), end);
}

}  // namespace

void ParallelForImpl(const ThreadPool* pool, size_t n, size_t grain, TaskFn task, void* context) {
  Range range = {task, context};
  const bool threads = pool != nullptr && pool->threads() > 1;
  while (range.first < n) {
    const bool last = n - range.first <= grain;
    if (threads && !last && !pool->impl()->stalls().Alone(Now)) {
      return RunTogether(*pool, range, n, grain);
    }
    const size_t end = last ? n : range.first + grain;
    Run(range, range.first, end);
    range.first = end;
  }
}

}  // namespace internal
}  // namespace sluice
