#include "bench/ffn_case.h"

#include <algorithm>
#include <cstdio>
#include <format>
#include <utility>

#include "bench/device_run.h"
#include "quant/cli/bench_block.h"
#include "sluice/cpu.h"
#include "src/base/status.h"

namespace sluice::bench {
namespace {

// The part of the available memory that rings may take.
constexpr double kMemoryShare = 0.7;
// Of tiny blocks, how many copies there may be.
constexpr uint64_t kMaxCopies = 20000;

std::string WeightsKey(const FfnCase& c) {
  return std::format("{}x{}/{}", c.shape.d_model, c.shape.d_ff, Name(c.format));
}

size_t CopiesFor(uint64_t ring_bytes, uint64_t bytes_each) {
  return static_cast<size_t>(std::min(ring_bytes / bytes_each + 2, kMaxCopies));
}

// All rings that could be alive at once, by the number of bytes that each is to have.
double WantedBytes(const Options& options) {
  double rings = 1;  // that of the DRAM limit
  for (const BlockFormat& format : options.formats) {
    rings += 1;
    for (const Library& rival : Rivals()) {
      if (!std::ranges::contains(options.rivals, rival.name) || !rival.takes(format)) continue;
      rings += rival.ring_per_threads ? static_cast<double>(options.threads.size()) : 1;
    }
  }
  return rings * static_cast<double>(options.shapes.size() * options.ring_bytes());
}

uint64_t RingBytes(const Options& options) {
  const double allowed = kMemoryShare * static_cast<double>(AvailableMemoryBytes());
  const double wanted = WantedBytes(options);
  if (!options.cold || wanted <= allowed) return options.ring_bytes();
  const auto fits =
      static_cast<uint64_t>(static_cast<double>(options.ring_bytes()) * allowed / wanted);
  std::fprintf(
      stderr,
      "ffn_bench: warning: rings of %llu MiB are wanted and %llu MiB fit into memory: part "
      "of the weights may stay in the last-level cache; measure fewer cases at a time\n",
      static_cast<unsigned long long>(options.ring_bytes() >> 20),
      static_cast<unsigned long long>(fits >> 20));
  return fits;
}

// The instruction set that sluice uses for many tokens: limits are of that one.
const DotInstruction* LimitInstruction(const Options& options, WeightFormat format, Mix mix) {
  if (!options.target.empty()) return InstructionOf(options.target, mix);
  return InstructionOf(ChooseKernels(format).batch, mix);
}

}  // namespace

Session::Session(const Options& options, DeviceLog& log)
    : options_(options),
      ring_bytes_(RingBytes(options)),
      limits_(ring_bytes_, options.pages),
      log_(log) {}

size_t Session::MaxTokens() const { return *std::ranges::max_element(options_.tokens); }

Expected<Session::Weights*> Session::WeightsOf(const FfnCase& c) {
  const bool known = weights_.contains(WeightsKey(c));
  if (!known) {
    SLUICE_TRY(CheckMemory(c));
  }
  Weights& weights = weights_[WeightsKey(c)];
  if (!known) {
    weights.block = RandomBlock(c.shape, c.format);
    weights.x = RandomTokens(std::max(MaxTokens(), kDistinctTokens), c.shape.d_model);
    weights.exact =
        Exact(weights.block, std::span(weights.x).first(kDistinctTokens * c.shape.d_model));
  }
  return &weights;
}

// The plain form and the copies of one library have to fit, or the system would end the program.
Status Session::CheckMemory(const FfnCase& c) const {
  SLUICE_ASSIGN(const uint64_t packed, PackedBytes(c.shape, c.format.weights));
  const uint64_t copies = c.cold ? CopiesFor(ring_bytes_, packed) : 1;
  const uint64_t needed = uint64_t{3} * c.shape.d_model * c.shape.d_ff + copies * packed;
  const uint64_t available = AvailableMemoryBytes();
  if (needed <= available) return {};
  return Fail(ErrorCode::kUnsupported, "needs {} MiB of memory, and {} MiB are available",
              needed >> 20, available >> 20);
}

Expected<Session::Prepared*> Session::PreparedOf(const FfnCase& c) {
  const std::string key = std::format("{}/{}/{}", WeightsKey(c), c.cold, c.library->name);
  const auto found = prepared_.find(key);
  if (found != prepared_.end()) return &found->second;
  SLUICE_ASSIGN(const Weights* weights, WeightsOf(c));
  SLUICE_ASSIGN(const uint64_t bytes, PackedBytes(c.shape, c.format.weights));
  Request request;
  request.block = &weights->block;
  request.copies = c.cold ? CopiesFor(ring_bytes_, bytes) : 1;
  request.threads = options_.threads;
  request.max_tokens = MaxTokens();
  request.target = options_.target;
  request.pages = options_.pages;
  Prepared prepared;
  prepared.copies = request.copies;
  SLUICE_ASSIGN(prepared.blocks, c.library->create(request));
  return &prepared_.emplace(key, std::move(prepared)).first->second;
}

Status Session::CheckOnce(const FfnCase& c, const Weights& weights, Prepared& prepared) {
  const std::pair key(c.tokens, c.threads);
  if (const auto found = prepared.checked.find(key); found != prepared.checked.end()) {
    return found->second;  // a wrong result stays wrong in later repetitions
  }
  const MatrixView<const float> x(weights.x.data(), c.tokens, c.shape.d_model);
  const MatrixView<float> y(y_.data(), c.tokens, c.shape.d_model);
  // The last copy: a library whose copies overlap would be wrong there.
  const Status status =
      Check(*c.library, *prepared.blocks, prepared.copies - 1, c.threads, x, y, weights.exact);
  prepared.checked.emplace(key, status);
  return status;
}

void Session::Run(benchmark::State& state, const FfnCase& c) {
  if (const Status status = Measure(state, c); !status) {
    failed_ = true;
    state.SkipWithError(status.error().message);
  }
  log_.Sample();
}

Status Session::Measure(benchmark::State& state, const FfnCase& c) {
  y_.resize(std::max(y_.size(), MaxTokens() * c.shape.d_model));
  if (!std::exchange(logged_dram_, true)) {
    SLUICE_TRY(LogDram(limits_, log_));
  }
  SLUICE_ASSIGN(Prepared* const prepared, PreparedOf(c));
  SLUICE_ASSIGN(const Weights* const weights, WeightsOf(c));
  SLUICE_TRY(CheckOnce(c, *weights, *prepared));
  const MatrixView<const float> x(weights->x.data(), c.tokens, c.shape.d_model);
  const MatrixView<float> y(y_.data(), c.tokens, c.shape.d_model);
  double dram = 0;
  if (c.cold) {
    SLUICE_ASSIGN(dram, limits_.Dram(c.threads));
  }
  SLUICE_TRY(SetCounters(state, c, *prepared, dram));
  // After the limits' threads and memory: pages, code, the pool's threads and, if warm, the
  // weights.
  const auto call = [&] {
    const size_t copy = prepared->next++ % prepared->copies;
    return prepared->blocks->Run(copy, c.threads, x, y);
  };
  SLUICE_TRY(call());
  for (auto _ : state) {
    if (const Status status = call(); !status) return status;
  }
  return {};
}

Status Session::SetCounters(benchmark::State& state, const FfnCase& c, const Prepared& prepared,
                            double dram) {
  const auto rate = [&state](const char* name, double value) {
    state.counters[name] = benchmark::Counter(value, benchmark::Counter::kIsIterationInvariantRate);
  };
  const double bytes = static_cast<double>(prepared.blocks->weight_bytes());
  const double operations = 6.0 * static_cast<double>(c.shape.d_model) *
                            static_cast<double>(c.shape.d_ff) * static_cast<double>(c.tokens);
  rate("GB/s", bytes / 1e9);
  rate("GOP/s", operations / 1e9);
  // Seconds that a limit asks for, times calls per second, is the fraction of it that was reached.
  double limit_seconds = 0;
  if (dram > 0) {
    state.counters["dram_GB/s"] = dram / 1e9;
    rate("of_dram", bytes / dram);
    limit_seconds = bytes / dram;
  }
  const Mix mix = MixOf(c.format.weights, c.format.used());
  const DotInstruction* const dots = LimitInstruction(options_, c.format.weights, Mix::kBlock32);
  const double peak = limits_.Arithmetic(dots, Mix::kDots, c.threads);
  if (peak > 0) rate("of_dots", operations / peak);
  const double ceiling =
      limits_.Arithmetic(LimitInstruction(options_, c.format.weights, mix), mix, c.threads);
  if (ceiling > 0) {
    state.counters["mix_GOP/s"] = ceiling / 1e9;
    rate("of_mix", operations / ceiling);
    limit_seconds = std::max(limit_seconds, operations / ceiling);
  }
  if (limit_seconds > 0) rate("of_limit", limit_seconds);
  state.SetLabel(prepared.blocks->Describe());
  return {};
}

}  // namespace sluice::bench
