// One case of ffn_bench: prepared, checked, timed.
#ifndef SLUICE_BENCH_FFN_CASE_H_
#define SLUICE_BENCH_FFN_CASE_H_

#include <benchmark/benchmark.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/block.h"
#include "bench/library.h"
#include "bench/limits.h"
#include "bench/options.h"
#include "quant/cli/device_log.h"

namespace sluice::bench {

struct FfnCase {
  Shape shape;
  BlockFormat format;
  const Library* library = nullptr;
  size_t tokens = 0;
  size_t threads = 0;
  bool cold = true;
};

// What cases share: blocks are made when the first case of a kind runs, so that a filter costs
// nothing, and are kept, so that repetitions can take turns.
class Session {
 public:
  // What is measured is noted in `log`, which must outlive the session.
  Session(const Options& options, DeviceLog& log);

  void Run(benchmark::State& state, const FfnCase& c);

  // The size of a ring of copies: three times the last-level cache, or what memory allows.
  uint64_t ring_bytes() const { return ring_bytes_; }
  // Whether a case could not be run, or a library was wrong.
  bool failed() const { return failed_; }

 private:
  // The weights of one shape and format, and what they compute.
  struct Weights {
    PlainBlock block;
    std::vector<float> x;
    ExactResult exact;
  };
  // A library's copies of them.
  struct Prepared {
    std::unique_ptr<Blocks> blocks;
    size_t copies = 0;
    size_t next = 0;
    std::map<std::pair<size_t, size_t>, Status> checked;  // by tokens, threads
  };

  Status CheckMemory(const FfnCase& c) const;
  Expected<Weights*> WeightsOf(const FfnCase& c);
  Expected<Prepared*> PreparedOf(const FfnCase& c);
  Status CheckOnce(const FfnCase& c, const Weights& weights, Prepared& prepared);
  Status Measure(benchmark::State& state, const FfnCase& c);
  Status SetCounters(benchmark::State& state, const FfnCase& c, const Prepared& prepared,
                     double dram);
  size_t MaxTokens() const;

  const Options options_;
  uint64_t ring_bytes_ = 0;
  Limits limits_;
  DeviceLog& log_;
  bool logged_dram_ = false;
  std::map<std::string, Weights> weights_;
  std::map<std::string, Prepared> prepared_;
  std::vector<float> y_;
  bool failed_ = false;
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_FFN_CASE_H_
