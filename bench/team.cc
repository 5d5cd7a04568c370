#include "bench/team.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace sluice::bench {
namespace {

using Clock = std::chrono::steady_clock;

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does nothing on most cores
#endif
}

}  // namespace

void SpinBarrier::Wait() {
  const size_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    return;
  }
  // Where threads outnumber free CPUs, who spins on keeps the one from running that it waits for.
  constexpr size_t kPatience = 1 << 14;
  for (size_t i = 0; generation_.load(std::memory_order_acquire) == generation; ++i) {
    if (i < kPatience) {
      Relax();
    } else {
      std::this_thread::yield();
    }
  }
}

double RunTogether(size_t threads, const std::function<void(size_t)>& body) {
  SpinBarrier start(threads);
  std::vector<Clock::time_point> ends(threads);
  Clock::time_point begin;
  std::vector<std::jthread> others;
  for (size_t t = 1; t < threads; ++t) {
    others.emplace_back([&, t] {
      start.Wait();
      body(t);
      ends[t] = Clock::now();
    });
  }
  start.Wait();
  begin = Clock::now();
  body(0);
  ends[0] = Clock::now();
  others.clear();  // joins
  return std::chrono::duration<double>(*std::ranges::max_element(ends) - begin).count();
}

}  // namespace sluice::bench
