#include "bench/limits.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

#include "bench/team.h"
#include "src/base/status.h"

namespace sluice::bench {
namespace {

// Long enough that starting threads does not count, short enough to be repeated before every
// measurement.
constexpr size_t kSampleBytes = size_t{24} << 20;
constexpr double kSampleSeconds = 1e-3;
constexpr int kSamples = 3;
constexpr std::array<size_t, 4> kStreams = {1, 2, 4, 8};

}  // namespace

Expected<double> Limits::Dram(size_t threads) {
  if (!reader_) {
    SLUICE_ASSIGN(DramReader reader, DramReader::Create(ring_bytes_, pages_));
    reader_.emplace(std::move(reader));
  }
  const size_t bytes = std::min(kSampleBytes, ring_bytes_ / 4);
  size_t& streams = streams_[threads];
  if (streams == 0) {
    double best = 0;
    for (const size_t candidate : kStreams) {
      const double speed = reader_->Read(threads, candidate, bytes);
      if (speed > best) streams = candidate;
      best = std::max(best, speed);
    }
  }
  double best = 0;
  for (int i = 0; i < kSamples; ++i) best = std::max(best, reader_->Read(threads, streams, bytes));
  return best;
}

double Limits::Arithmetic(const DotInstruction* instruction, Mix mix, size_t threads) {
  if (instruction == nullptr) return 0;
  const auto loop = instruction->loops[static_cast<size_t>(mix)];
  if (loop == nullptr) return 0;
  size_t& rounds = rounds_[loop];
  if (rounds == 0) rounds = RoundsFor(loop, kSampleSeconds);
  double best = 0;
  for (int i = 0; i < kSamples; ++i) {
    best = std::max(best, OperationsPerSecond(loop, threads, rounds));
  }
  return best;
}

double OperationsPerSecond(double (*loop)(size_t rounds), size_t threads, size_t rounds) {
  std::atomic<double> operations = 0;
  const double seconds = RunTogether(threads, [&](size_t) { operations += loop(rounds); });
  return operations / seconds;
}

size_t RoundsFor(double (*loop)(size_t rounds), double seconds) {
  using Clock = std::chrono::steady_clock;
  size_t rounds = 1000;
  while (true) {
    const Clock::time_point start = Clock::now();
    loop(rounds);
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    if (took > seconds / 10) {
      return static_cast<size_t>(static_cast<double>(rounds) * seconds / took) + 1;
    }
    rounds *= 4;
  }
}

}  // namespace sluice::bench
