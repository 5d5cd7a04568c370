#include "src/backends/plan.h"

#include <unistd.h>

#include <algorithm>

#include "src/base/aligned_buffer.h"
#include "src/format/layout.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

// Rough speeds of one core of a Xeon, below what its benchmarks show (20 GB/s, 350 to 700 GOP/s);
// no slower machine has been measured. The question is only whether the work outlasts the waking of
// a thread, and on a slower core it lasts longer.
constexpr double kBytesPerSecond = 10e9;
constexpr double kOperationsPerSecond = 200e9;
// Three forks and joins, allowed 5 µs each. Of threads that still spin one takes 0.7 µs
// (roofline_bench, fork_join/pool); sleeping ones take longer, which has not been measured.
constexpr double kParallelSeconds = 15e-6;
// Pieces per thread, so that a thread that was held up does not hold up the others.
constexpr size_t kPiecesPerThread = 4;
// Of a CPU that does not tell: a Cortex-A76's.
constexpr size_t kDefaultLevel2Bytes = size_t{512} << 10;
// For a small cache. Unpacking a panel took 5 to 8 % of the time for 64 tokens, and takes as long
// for fewer. This many has not been measured.
constexpr size_t kMinChunkTokens = 24;

// Of `strips` strips that threads share, how many to multiply at once: `most`, or fewer by twos if
// that leaves less to the thread with the most pieces.
size_t Together(size_t strips, size_t most, size_t least, size_t threads) {
  const auto longest = [&](size_t together) {
    return std::min(strips, DivCeil(DivCeil(strips, together), threads) * together);
  };
  size_t best = most;
  for (size_t fewer = most; fewer >= least + 2;) {
    fewer -= 2;
    if (longest(fewer) < longest(best)) best = fewer;
  }
  return best;
}

size_t Grain(size_t pieces, size_t threads) {
  return std::max<size_t>(1, pieces / (threads * kPiecesPerThread));
}

}  // namespace

PassPlan PlanPass(const PlanInput& input) {
  PassPlan plan;
  const double operations = 6.0 * static_cast<double>(input.d_model) *
                            static_cast<double>(input.d_ff) * static_cast<double>(input.tokens);
  const double seconds = std::max(static_cast<double>(input.weight_bytes) / kBytesPerSecond,
                                  operations / kOperationsPerSecond);
  plan.parallel = input.threads > 1 && seconds > kParallelSeconds;
  const size_t threads = plan.parallel ? input.threads : 1;

  // Half of the cache, as weights and results want the rest. A token's value takes a byte, and a
  // quarter more with its block's scale and offset.
  const size_t level2 = input.level2_bytes == 0 ? kDefaultLevel2Bytes : input.level2_bytes;
  const size_t row_bytes = std::max<size_t>(1, std::max(input.d_model, input.d_ff) * 5 / 4);
  plan.chunk_tokens = std::clamp(level2 / 2 / row_bytes, kMinChunkTokens, kMaxDotTokens);

  const size_t up_strips = DivCeil(input.d_ff, kStripRows);
  const size_t down_strips = DivCeil(input.d_model, kStripRows);
  plan.unit_strips = Together(up_strips, input.strips / 2, kTileStrips / 2, threads);
  plan.group_strips = Together(down_strips, input.strips, kTileStrips, threads);
  plan.unit_grain = Grain(DivCeil(up_strips, plan.unit_strips), threads);
  plan.group_grain = Grain(DivCeil(down_strips, plan.group_strips), threads);
  // A few rows are quantized sooner than another thread is woken.
  plan.token_grain = std::max<size_t>(4, DivCeil(input.tokens, threads));
  return plan;
}

size_t Level2CacheBytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
#else
  return 0;
#endif
}

}  // namespace sluice
