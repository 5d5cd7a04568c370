// What this machine reaches at best: reading memory, arithmetic in registers, starting and joining
// threads. `--help` lists the options; names read
//
//   dram/PAGES/streams:S/threads:N        bytes per second
//   dram/…/streams:S/meet:M/threads:N     the same if threads wait for one another every M KiB
//   arithmetic/INSTRUCTION/MIX/threads:N  operations per second; what MIX is: bench/instructions.h
//   fork_join/KIND/threads:N              the time of one start and end of parallel work
#include <benchmark/benchmark.h>

#include <cstdio>
#include <format>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "bench/device_run.h"
#include "bench/dram.h"
#include "bench/instructions.h"
#include "bench/limits.h"
#include "bench/options.h"
#include "bench/team.h"
#include "src/base/thread_pool.h"

namespace sluice::bench {
namespace {

constexpr size_t kReadBytes = size_t{32} << 20;  // of each thread in an iteration
constexpr double kLoopSeconds = 2e-3;
// Of each thread. About half of what each of two reads of a block of 576 x 1536 and of 2048 x 5632
// in qb4w:32.
constexpr size_t kMeetBytes[] = {size_t{384} << 10, size_t{4} << 20};

// One buffer for each page kind, made when it is first read.
class Readers {
 public:
  explicit Readers(size_t bytes) : bytes_(bytes) {}
  Expected<DramReader*> Get(PageKind kind) {
    auto found = readers_.find(kind);
    if (found == readers_.end()) {
      auto reader = DramReader::Create(bytes_, kind);
      if (!reader) return std::unexpected(reader.error());
      found = readers_.emplace(kind, *std::move(reader)).first;
    }
    return &found->second;
  }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
  std::map<PageKind, DramReader> readers_;
};

void Dram(benchmark::State& state, Readers& readers, PageKind kind, size_t streams, size_t threads,
          size_t meet = 0) {
  const auto reader = readers.Get(kind);
  if (!reader) return state.SkipWithError(reader.error().message);
  const size_t bytes = std::min(kReadBytes, readers.bytes() / 4);
  for (auto _ : state) {
    const double speed = (*reader)->Read(threads, streams, bytes, meet);
    state.SetIterationTime(static_cast<double>(threads * bytes) / speed);
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(threads * bytes) / 1e9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void Arithmetic(benchmark::State& state, double (*loop)(size_t), size_t threads) {
  const size_t rounds = RoundsFor(loop, kLoopSeconds);
  const double operations = static_cast<double>(threads) * loop(rounds);
  for (auto _ : state) {
    state.SetIterationTime(operations / OperationsPerSecond(loop, threads, rounds));
  }
  state.counters["GOP/s"] =
      benchmark::Counter(operations / 1e9, benchmark::Counter::kIsIterationInvariantRate);
}

void PoolForkJoin(benchmark::State& state, size_t threads) {
  const auto pool = ThreadPool::Create(threads);
  if (!pool) return state.SkipWithError(pool.error().message);
  pool->impl()->stalls().NeverAlone();
  for (auto _ : state) {
    ParallelFor(&*pool, threads, 1, [](size_t begin, size_t) { benchmark::DoNotOptimize(begin); });
  }
}

// A fork and a join are two barriers.
void SpinForkJoin(benchmark::State& state, size_t threads) {
  constexpr size_t kTimes = 200;
  for (auto _ : state) {
    SpinBarrier barrier(threads);
    const double seconds = RunTogether(threads, [&](size_t) {
      for (size_t i = 0; i < 2 * kTimes; ++i) barrier.Wait();
    });
    state.SetIterationTime(seconds / kTimes);
  }
}

// What all benchmarks share, and the record of the device they ran on.
struct Machine {
  explicit Machine(const Options& options)
      : readers(options.ring_bytes()),
        limits(options.ring_bytes(), options.pages),
        log(StartDeviceLog(options)) {}

  Readers readers;
  Limits limits;
  DeviceLog log;
  bool logged_dram = false;
};

// `body(state)`, noted in the log.
template <class Body>
auto Logged(Machine& machine, Body body) {
  return [&machine, body](benchmark::State& state) {
    if (!std::exchange(machine.logged_dram, true)) {
      const Status status = LogDram(machine.limits, machine.log);
      if (!status) return state.SkipWithError(status.error().message);
    }
    body(state);
    machine.log.Sample();
  };
}

void RegisterDram(Machine& machine, size_t threads) {
  for (const PageKind kind : {PageKind::kSmall, PageKind::kHuge}) {
    for (const size_t streams : {1, 2, 4, 8}) {
      benchmark::RegisterBenchmark(
          std::format("dram/{}/streams:{}/threads:{}", Name(kind), streams, threads),
          Logged(machine,
                 [=, &machine](benchmark::State& state) {
                   Dram(state, machine.readers, kind, streams, threads);
                 }))
          ->UseManualTime();
    }
  }
  if (threads == 1) return;
  for (const size_t meet : kMeetBytes) {
    benchmark::RegisterBenchmark(std::format("dram/{}/streams:8/meet:{}/threads:{}",
                                             Name(PageKind::kHuge), meet >> 10, threads),
                                 Logged(machine,
                                        [=, &machine](benchmark::State& state) {
                                          Dram(state, machine.readers, PageKind::kHuge, 8, threads,
                                               meet);
                                        }))
        ->UseManualTime();
  }
}

void RegisterLoop(Machine& machine, const std::string& name, double (*loop)(size_t),
                  size_t threads) {
  if (loop == nullptr) return;
  benchmark::RegisterBenchmark(
      std::format("arithmetic/{}/threads:{}", name, threads),
      Logged(machine, [=](benchmark::State& state) { Arithmetic(state, loop, threads); }))
      ->UseManualTime();
}

void RegisterForkJoin(Machine& machine, size_t threads) {
  if (threads == 1) return;
  benchmark::RegisterBenchmark(
      std::format("fork_join/pool/threads:{}", threads),
      Logged(machine, [=](benchmark::State& state) { PoolForkJoin(state, threads); }))
      ->UseRealTime();
  benchmark::RegisterBenchmark(
      std::format("fork_join/spin/threads:{}", threads),
      Logged(machine, [=](benchmark::State& state) { SpinForkJoin(state, threads); }))
      ->UseManualTime()
      ->Iterations(20);  // each is many, so the shortness of one must not ask for more
}

int Main(int argc, char** argv) {
  CommandLine line = ParseCommandLine(Program::kRoofline, argc, argv);
  if (line.status) return *line.status;
  Machine machine(line.options);
  for (const size_t threads : line.options.threads) {
    RegisterDram(machine, threads);
    for (const DotInstruction& dot : DotInstructions()) {
      for (const Mix mix : kMixes) {
        RegisterLoop(machine, std::format("{}/{}", dot.name, Name(mix)),
                     dot.loops[static_cast<size_t>(mix)], threads);
      }
    }
    for (const FmaInstruction& fma : FmaInstructions()) {
      RegisterLoop(machine, std::format("{}/fma", fma.name), fma.loop, threads);
    }
    RegisterForkJoin(machine, threads);
  }
  benchmark::AddCustomContext("ring_bytes", std::to_string(line.options.ring_bytes()));
  return RunBenchmarks(line.rest, machine.log, Json::object()) ? 0 : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) { return sluice::bench::Main(argc, argv); }
