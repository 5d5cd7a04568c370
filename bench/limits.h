// The machine's limits, measured again and again beside what they are compared with: a machine that
// others use as well is not the same from one second to the next.
#ifndef SLUICE_BENCH_LIMITS_H_
#define SLUICE_BENCH_LIMITS_H_

#include <cstddef>
#include <map>
#include <optional>

#include "bench/dram.h"
#include "bench/instructions.h"

namespace sluice::bench {

class Limits {
 public:
  Limits(size_t ring_bytes, PageKind pages) : ring_bytes_(ring_bytes), pages_(pages) {}

  // Both take the best of a few short samples: a limit is what the machine can do, and what others
  // take from it for a moment does not count.

  // Bytes per second, along the number of streams that was fastest at first.
  Expected<double> Dram(size_t threads);
  // Operations per second of `mix`; 0 if `instruction` is null or has no loop for it.
  double Arithmetic(const DotInstruction* instruction, Mix mix, size_t threads);

 private:
  size_t ring_bytes_;
  PageKind pages_;
  std::optional<DramReader> reader_;
  std::map<size_t, size_t> streams_;             // the best for each number of threads
  std::map<double (*)(size_t), size_t> rounds_;  // of each loop, for a sample
};

// What `loop` reaches on `threads` threads: operations per second.
double OperationsPerSecond(double (*loop)(size_t rounds), size_t threads, size_t rounds);
// Rounds that take about `seconds`.
size_t RoundsFor(double (*loop)(size_t rounds), double seconds);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LIMITS_H_
