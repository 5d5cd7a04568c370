// Splitting work over the threads of a ThreadPool.
#ifndef SLUICE_SRC_BASE_THREAD_POOL_H_
#define SLUICE_SRC_BASE_THREAD_POOL_H_

#include <cstddef>
#include <type_traits>

#include "sluice/cpu.h"
#include "src/base/stalls.h"

struct pthreadpool;

namespace sluice {

class ThreadPool::Impl {
 public:
  Impl(pthreadpool* pool, bool crowded) : pool_(pool), crowded_(crowded) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // For operators of XNNPACK, which share the pool.
  pthreadpool* get() const { return pool_; }
  // Whether there are more threads than CPUs for them.
  bool crowded() const { return crowded_; }
  Stalls& stalls() { return stalls_; }

 private:
  pthreadpool* pool_;
  bool crowded_;
  Stalls stalls_;
};

inline pthreadpool* PoolHandle(const ThreadPool* pool) {
  return pool == nullptr ? nullptr : pool->impl()->get();
}

namespace internal {
using TaskFn = void (*)(void* context, size_t begin, size_t end);
void ParallelForImpl(const ThreadPool* pool, size_t n, size_t grain, TaskFn task, void* context);
}  // namespace internal

// Calls body(begin, end) for consecutive ranges that cover [0, n), on the pool's threads and the
// caller's; returns when all are done. Ranges start at multiples of `grain` (>= 1) and are at most
// `grain` long. With a null pool or a single range everything runs on the calling thread, and for
// a while after other threads were not running (stalls.h), so a body must not wait for another
// range. Every call of body runs in the contract's floating-point environment. Allocates nothing.
template <class Body>
void ParallelFor(const ThreadPool* pool, size_t n, size_t grain, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  internal::ParallelForImpl(
      pool, n, grain,
      [](void* context, size_t begin, size_t end) { (*static_cast<Plain*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

inline size_t ThreadCount(const ThreadPool* pool) { return pool == nullptr ? 1 : pool->threads(); }

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_THREAD_POOL_H_
