#include "quant/cli/bench_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <span>

#include "src/base/fp_environment.h"
#include "src/base/status.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSampleSeconds = 2e-3;
constexpr int kTries = 3;

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

// Inputs, outputs and scratch that all cases share, as the layers of a model do.
class Arena {
 public:
  Arena(const std::vector<BenchCase>& cases, size_t d_model) : d_model_(d_model) {
    size_t tokens = 0;
    for (const BenchCase& c : cases) tokens = std::max(tokens, c.tokens);
    std::mt19937_64 engine(1);
    std::normal_distribution<float> normal;
    x_.resize(tokens * d_model);
    y_.resize(tokens * d_model);
    for (float& v : x_) v = normal(engine);
  }

  Status Allocate(const std::vector<BenchCase>& cases) {
    size_t bytes = 0;
    for (const BenchCase& c : cases) {
      const BlockRunner& runner = *c.ring->runners.front();
      bytes = std::max(bytes, runner.ScratchBytes(std::min(c.tokens, runner.MaxPassTokens())));
    }
    SLUICE_ASSIGN(scratch_, AlignedBuffer::Create(bytes));
    return {};
  }

  // One call of the next block.
  void Call(BenchCase& c) {
    std::vector<std::unique_ptr<BlockRunner>>& runners = c.ring->runners;
    const BlockRunner& runner = *runners[(*c.ring->next)++ % runners.size()];
    const size_t pass_tokens = runner.MaxPassTokens();
    const MatrixView<const float> x(x_.data(), c.tokens, d_model_);
    const MatrixView<float> y(y_.data(), c.tokens, d_model_);
    for (size_t first = 0; first < c.tokens; first += pass_tokens) {
      const size_t count = std::min(pass_tokens, c.tokens - first);
      const Pass pass = {x.Rows(first, count), y.Rows(first, count), false, scratch_.span()};
      runner.GateUp(pass);
      runner.Down(pass);
    }
  }

  // Seconds that `calls` calls take.
  double Time(BenchCase& c, size_t calls) {
    const Clock::time_point start = Clock::now();
    for (size_t i = 0; i < calls; ++i) Call(c);
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  bool OutputIsFinite(const BenchCase& c) const {
    return std::ranges::all_of(std::span(y_).first(c.tokens * d_model_),
                               [](float v) { return std::isfinite(v); });
  }

 private:
  size_t d_model_;
  std::vector<float> x_;
  std::vector<float> y_;
  AlignedBuffer scratch_;
};

// Calls that last kSampleSeconds when nothing else disturbs them: the shortest of a few tries.
size_t CallsPerSample(Arena& arena, BenchCase& c) {
  arena.Call(c);  // threads wake, pages are mapped, the output is there to be looked at
  size_t calls = 1;
  while (true) {
    double seconds = arena.Time(c, calls);
    for (int i = 1; i < kTries; ++i) seconds = std::min(seconds, arena.Time(c, calls));
    if (seconds >= kSampleSeconds) return calls;
    const double wanted = static_cast<double>(calls) * kSampleSeconds / std::max(seconds, 1e-9);
    calls = std::max(
        calls + 1, static_cast<size_t>(std::min(1.1 * wanted, 10.0 * static_cast<double>(calls))));
  }
}

}  // namespace

double BenchCase::median() const { return Median(seconds); }
double BenchCase::min() const { return *std::ranges::min_element(seconds); }
double BenchCase::max() const { return *std::ranges::max_element(seconds); }

double MedianRatio(const BenchCase& a, const BenchCase& b) {
  std::vector<double> ratios(a.seconds.size());
  std::ranges::transform(a.seconds, b.seconds, ratios.begin(), std::divides<>());
  return Median(std::move(ratios));
}

Status Measure(std::vector<BenchCase>& cases, size_t d_model, size_t rounds,
               const std::function<void(size_t)>& progress) {
  const FpEnvironment environment;  // as Ffn::Forward sets it
  Arena arena(cases, d_model);
  SLUICE_TRY(arena.Allocate(cases));
  std::vector<size_t> calls(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    calls[i] = CallsPerSample(arena, cases[i]);
    if (!arena.OutputIsFinite(cases[i])) {
      return Fail(ErrorCode::kCorrupt, "{} by {}: the output is not finite", cases[i].weights,
                  cases[i].backend);
    }
  }
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const size_t at = (round + i) % cases.size();
      cases[at].seconds.push_back(arena.Time(cases[at], calls[at]) /
                                  static_cast<double>(calls[at]));
    }
    progress(round + 1);
  }
  return {};
}

}  // namespace sluice
