// Whole feed-forward blocks: sluice and, with --rivals, other libraries on the same weights.
// `ffn_bench --help` lists the options, bench/README.md explains method and counters. Names read
//
//   ffn/SHAPE/FORMAT/cold|warm/tokens:T/threads:N/LIBRARY
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <format>
#include <set>
#include <string>
#include <vector>

#include "bench/device_run.h"
#include "bench/ffn_case.h"
#include "bench/options.h"
#include "quant/cli/bench_block.h"
#include "sluice/cpu.h"
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
  std::set<std::string> measured;
  for (const Shape& shape : options.shapes) {
    if (!measured.insert(ShapeName(shape)).second) continue;  // of another model too
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

// The models that the results stand for; several may have the same block.
Json ShapesJson(const std::vector<Shape>& shapes) {
  Json list = Json::array();
  for (const Shape& shape : shapes) {
    list.push_back({{"model", shape.model.empty() ? Json(nullptr) : Json(shape.model)},
                    {"d_model", shape.d_model},
                    {"d_ff", shape.d_ff},
                    {"layers", shape.layers == 0 ? Json(nullptr) : Json(shape.layers)}});
  }
  return list;
}

std::string DefaultThreadsText(const Device& device) {
  return std::format("{} (CPUs {}{})", DefaultThreads(), device.cpus.value_or("unknown"),
                     device.quota_cpus ? std::format(", quota {}", *device.quota_cpus) : "");
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
  DeviceLog log = StartDeviceLog(options);
  Session session(options, log);
  RegisterAll(session, options);
  benchmark::AddCustomContext("cpu", CpuName());
  benchmark::AddCustomContext("last_level_cache_bytes", std::to_string(options.cache_bytes));
  benchmark::AddCustomContext("ring_bytes", std::to_string(session.ring_bytes()));
  benchmark::AddCustomContext("pages", std::string(Name(options.pages)));
  benchmark::AddCustomContext("target", options.target.empty() ? "best" : options.target);
  benchmark::AddCustomContext("default_threads", DefaultThreadsText(log.device()));
  const bool whole = RunBenchmarks(line.rest, log, {{"shapes", ShapesJson(options.shapes)}});
  return session.failed() || !whole ? 1 : 0;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::Main(argc, argv); }
