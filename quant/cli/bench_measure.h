// Measuring blocks so that their ratios hold on a machine that does other things as well.
#ifndef SLUICE_QUANT_CLI_BENCH_MEASURE_H_
#define SLUICE_QUANT_CLI_BENCH_MEASURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sluice/cpu.h"
#include "sluice/error.h"
#include "src/backends/backend.h"
#include "src/base/aligned_buffer.h"

namespace sluice {

// Blocks that follow one another in memory: each call takes the next, whoever makes it, so that no
// call finds weights that a recent one has left in a cache.
struct RunnerRing {
  std::vector<std::unique_ptr<BlockRunner>> runners;
  std::shared_ptr<size_t> next = std::make_shared<size_t>(0);  // shared by rings on one memory
};

// One combination to be timed.
struct BenchCase {
  std::string weights;
  std::string activations;
  size_t tokens = 0;
  size_t threads = 0;
  std::string backend;
  std::string target;
  size_t block = 0;  // which of the blocks it runs on
  RunnerRing* ring = nullptr;

  std::vector<double> seconds;  // of one call, by round

  double median() const;
  double min() const;
  double max() const;
};

// The median of a's time over b's, round by round.
double MedianRatio(const BenchCase& a, const BenchCase& b);

// Times all cases: in each round every case takes one sample, in an order that rotates, and each
// sample is as many calls as last 2 ms. All cases are of blocks with the same d_model. `progress`
// is called after each round. Errors: no memory, an output that is not finite.
Status Measure(std::vector<BenchCase>& cases, size_t d_model, size_t rounds,
               const std::function<void(size_t)>& progress);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_BENCH_MEASURE_H_
