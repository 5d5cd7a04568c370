// Threads that start together, for measuring what a machine gives to several at once.
#ifndef SLUICE_BENCH_TEAM_H_
#define SLUICE_BENCH_TEAM_H_

#include <atomic>
#include <cstddef>
#include <functional>

namespace sluice::bench {

// A barrier that only spins: the least that a fork or a join can cost.
class SpinBarrier {
 public:
  explicit SpinBarrier(size_t threads) : threads_(threads) {}
  void Wait();

 private:
  const size_t threads_;
  alignas(64) std::atomic<size_t> arrived_ = 0;
  alignas(64) std::atomic<size_t> generation_ = 0;
};

// Runs body(0) … body(threads − 1) at the same time, body(0) on the calling thread; returns the
// seconds from the common start to the last one's end. The threads live no longer than the call, so
// none spins beside the next measurement.
double RunTogether(size_t threads, const std::function<void(size_t)>& body);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_TEAM_H_
