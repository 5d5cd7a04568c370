// Whole feed-forward blocks: sluice and, with --rivals, other libraries on the same weights.
// `ffn_bench --help` lists the options, bench/README.md explains method and counters. Names read
//
//   ffn/SHAPE/FORMAT/cold|warm/tokens:T/threads:N/LIBRARY
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <format>
#include <string>
#include <vector>

#include "bench/ffn_case.h"
#include "bench/options.h"
#include "quant/cli/bench_block.h"
#include "src/base/cpu_name.h"
#include "src/kernels/kernels.h"

namespace sluice::bench {
namespace {

std::string ShapeName(const Shape& shape) {
  return std::format("{}x{}", shape.d_model, shape.d_ff);
}

std::vector<const Library*> LibrariesFor(const Options& options, const BlockFormat& format) {
  std::vector<const Library*> libraries = {&Sluice()};
  for (const Library& rival : Rivals()) {
    if (std::ranges::contains(options.rivals, rival.name) && rival.takes(format)) {
      libraries.push_back(&rival);
    }
  }
  return libraries;
}

void Register(Session& session, const FfnCase& c) {
  const std::string name =
      std::format("ffn/{}/{}/{}/tokens:{}/threads:{}/{}", ShapeName(c.shape), Name(c.format),
                  c.cold ? "cold" : "warm", c.tokens, c.threads, c.library->name);
  benchmark::RegisterBenchmark(name,
                               [&session, c](benchmark::State& state) { session.Run(state, c); })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void RegisterAll(Session& session, const Options& options) {
  std::vector<bool> states;
  if (options.cold) states.push_back(true);
  if (options.warm) states.push_back(false);
  for (const Shape& shape : options.shapes) {
    for (const BlockFormat& format : options.formats) {
      for (const bool cold : states) {
        for (const size_t tokens : options.tokens) {
          for (const size_t threads : options.threads) {
            for (const Library* library : LibrariesFor(options, format)) {
              Register(session, {shape, format, library, tokens, threads, cold});
            }
          }
        }
      }
    }
  }
}

int Main(int argc, char** argv) {
  CommandLine line = ParseCommandLine(Program::kFfn, argc, argv);
  if (line.status) return *line.status;
  const Options& options = line.options;
  if (!options.target.empty()) {
    const auto kernels = FindKernels(options.target, options.formats.front().weights);
    if (!kernels) {
      std::fprintf(stderr, "--target: %s\n", kernels.error().message.c_str());
      return 2;
    }
  }
  Session session(options);
  RegisterAll(session, options);
  int rest = static_cast<int>(line.rest.size());
  benchmark::Initialize(&rest, line.rest.data());
  benchmark::AddCustomContext("cpu", CpuName());
  benchmark::AddCustomContext("last_level_cache_bytes", std::to_string(options.cache_bytes));
  benchmark::AddCustomContext("ring_bytes", std::to_string(session.ring_bytes()));
  benchmark::AddCustomContext("pages", std::string(Name(options.pages)));
  benchmark::AddCustomContext("target", options.target.empty() ? "best" : options.target);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return session.failed() ? 1 : 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::Main(argc, argv); }
