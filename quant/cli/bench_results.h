// What `sluice bench` prints.
#ifndef SLUICE_QUANT_CLI_BENCH_RESULTS_H_
#define SLUICE_QUANT_CLI_BENCH_RESULTS_H_

#include <string>
#include <vector>

#include "quant/cli/bench_block.h"
#include "quant/cli/bench_measure.h"

namespace sluice {

struct BenchResults {
  std::string machine;
  bool cold = true;
  std::vector<BenchBlock> blocks;
  std::vector<BenchCase> cases;  // grouped: cases that are compared follow one another
};

// A sentence if the machine did other things meanwhile: some case's median is more than twice its
// fastest sample. Else empty.
std::string BusyWarning(const std::vector<BenchCase>& cases);

// Schema sluice.bench/1.
std::string BenchJson(const BenchResults& results);

// A table; each case is compared with the first of its weights, tokens and threads. A line
// under it if the machine was busy.
std::string BenchText(const BenchResults& results);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_BENCH_RESULTS_H_
