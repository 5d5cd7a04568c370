// When the other threads of a pool are too often not running to be worth waiting for.
#ifndef SLUICE_SRC_BASE_STALLS_H_
#define SLUICE_SRC_BASE_STALLS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace sluice {

// Where other programs want the CPUs too, a thread of the pool can lose its own in the middle of
// its work, and the caller, who has nothing left to do, spins until the thread gets it back: a
// block that takes 30 µs took 32 ms beside busy programs on two CPUs. After such a stall the caller
// therefore works alone, for as long as it has lost, and longer where stalls follow one another:
// where they do so without end, one part in kMostAlone + 1 of the time is lost to them.
//
// Times are nanoseconds of any steady clock, of which a call takes as few as it can: one costs 30
// ns, and a block has several calls in 20 µs. Safe to use from several threads.
class Stalls {
 public:
  // No shorter wait is a stall: slow cores take their time, too.
  static constexpr int64_t kLeast = 1'000'000;
  // A longer one counts as this: the whole process may have been stopped.
  static constexpr int64_t kMost = 100'000'000;
  // The time alone is up to so many times what was lost.
  static constexpr int64_t kMostAlone = 8;

  // For measurements of the pool itself.
  void NeverAlone() { patient_ = true; }

  // Whether a call, or the rest of it, had better stay on the calling thread. now() is asked only
  // after a stall.
  template <class Clock>
  bool Alone(Clock now) {
    const int64_t until = until_.load(std::memory_order_relaxed);
    if (until == kNone) return false;
    const int64_t time = now();
    if (time < until) return true;
    until_.store(kNone, std::memory_order_relaxed);
    resumed_.store(time, std::memory_order_relaxed);
    last_end_.store(time, std::memory_order_relaxed);
    return false;
  }

  // The caller had nothing left to do at `idle`, and all was done at `end`. It is a stall if that
  // took longer than all since the end of the call before, or of the time alone, the caller's part
  // of the work included. The first call has none before it, and is none.
  void Note(int64_t idle, int64_t end) {
    const int64_t last_end = last_end_.load(std::memory_order_relaxed);
    last_end_.store(end, std::memory_order_relaxed);
    const int64_t wait = std::min(end - idle, kMost);
    if (wait <= kLeast || last_end == kNone || wait <= idle - last_end || patient_) return;
    // Soon after a time alone, that was too short.
    const int64_t resumed = resumed_.load(std::memory_order_relaxed);
    const int64_t before = alone_.load(std::memory_order_relaxed);
    const bool soon = resumed != kNone && idle - resumed < before;
    const int64_t alone = soon ? std::min(2 * before, kMostAlone * wait) : wait;
    alone_.store(alone, std::memory_order_relaxed);
    until_.store(end + alone, std::memory_order_relaxed);
  }

 private:
  static constexpr int64_t kNone = INT64_MIN;

  std::atomic<int64_t> until_ = kNone;     // of the time alone
  std::atomic<int64_t> resumed_ = kNone;   // when the last time alone was over
  std::atomic<int64_t> alone_ = 0;         // how long it was
  std::atomic<int64_t> last_end_ = kNone;  // of the call before, or of the time alone
  bool patient_ = false;
};

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_STALLS_H_
