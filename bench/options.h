// The options that the benchmarks have beside those of Google Benchmark.
#ifndef SLUICE_BENCH_OPTIONS_H_
#define SLUICE_BENCH_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/page_buffer.h"
#include "bench/shapes.h"
#include "sluice/format.h"

namespace CLI {
class App;
}

namespace sluice::bench {

// A weight format and the activations that go with it: the default ones unless others are named.
struct BlockFormat {
  WeightFormat weights;
  std::optional<ActivationFormat> activations;

  ActivationFormat used() const;
  friend bool operator==(const BlockFormat&, const BlockFormat&) = default;
};
std::string Name(const BlockFormat& format);  // "qb4w:32", "qb4w:32+row"
Expected<BlockFormat> ParseBlockFormat(std::string_view name);

struct Options {
  std::vector<Shape> shapes;
  std::vector<BlockFormat> formats;
  std::vector<size_t> tokens = {1, 4, 16, 128};
  std::vector<size_t> threads;
  bool cold = true;
  bool warm = false;
  std::vector<std::string> rivals;
  std::string target;
  PageKind pages = PageKind::kHuge;
  uint64_t cache_bytes = 0;
  std::string device_root;  // what DeviceFiles reads below
  std::optional<std::string> governor_was;

  // What outgrows the last-level cache three times over.
  uint64_t ring_bytes() const { return 3 * cache_bytes; }
};

// Which of the options a program has.
enum class Program : uint8_t { kFfn, kRoofline };

// Takes its own options out of the command line and leaves Google Benchmark's. `status` is set when
// the program is to end: help was asked for, or an option was wrong.
struct CommandLine {
  Options options;
  std::vector<char*> rest;  // argv[0] and what is left
  std::optional<int> status;
};
CommandLine ParseCommandLine(Program program, int argc, char** argv);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_OPTIONS_H_
