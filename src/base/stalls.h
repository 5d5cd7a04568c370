// When the other threads of a pool are too often not running to be worth waiting for.
#ifndef SLUICE_SRC_BASE_STALLS_H_
#define SLUICE_SRC_BASE_STALLS_H_

#include <atomic>
#include <cstdint>

namespace sluice {

// Where other programs want the CPUs too, a thread of the pool can lose its own in the middle of
// its work, and the caller, who has nothing left to do, spins until the thread gets it back: a
// block that takes 30 µs took 32 ms beside busy programs on two CPUs. After such a stall the caller
// therefore works alone for a while, in proportion to what it lost: at most one part in kAlone + 1
// of the time is lost, and a single stall costs little.
//
// Times are nanoseconds of any steady clock, of which a call takes as few as it can: one costs 30
// ns, and a block has several calls in 20 µs. Safe to use from several threads.
class Stalls {
 public:
  // No shorter wait is a stall: slow cores take their time, too.
  static constexpr int64_t kLeast = 1'000'000;
  static constexpr int64_t kAlone = 8;

  // Whether a call had better stay on the calling thread. now() is asked only after a stall.
  template <class Clock>
  bool Alone(Clock now) {
    const int64_t until = until_.load(std::memory_order_relaxed);
    if (until == kNever) return false;
    const int64_t time = now();
    if (time < until) return true;
    until_.store(kNever, std::memory_order_relaxed);
    last_end_.store(time, std::memory_order_relaxed);
    return false;
  }

  // The caller had nothing left to do at `idle`, and all was done at `end`. It is a stall if that
  // took longer than all since the end of the call before, or of the time alone, the caller's part
  // of the work included.
  void Note(int64_t idle, int64_t end) {
    const int64_t wait = end - idle;
    const int64_t before = idle - last_end_.load(std::memory_order_relaxed);
    last_end_.store(end, std::memory_order_relaxed);
    if (wait > kLeast && wait > before) {
      until_.store(end + kAlone * wait, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr int64_t kNever = INT64_MIN;

  std::atomic<int64_t> until_ = kNever;
  std::atomic<int64_t> last_end_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_STALLS_H_
