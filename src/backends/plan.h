// How a pass over a block is cut: a small cost model. A plan decides about
// time only: every way of cutting gives the same bits.
#ifndef SLUICE_SRC_BACKENDS_PLAN_H_
#define SLUICE_SRC_BACKENDS_PLAN_H_

#include <cstddef>

namespace sluice {

// What the model looks at.
struct PlanInput {
  size_t tokens = 1;
  size_t threads = 1;
  size_t d_model = 0;
  size_t d_ff = 0;
  size_t weight_bytes = 0;  // of all matrices, scales included
  size_t level2_bytes = 0;  // of one core's second-level cache; 0: unknown
  // The most strips that the kernels multiply at once: of so many tokens; kTileStrips or more.
  size_t strips = 4;
};

struct PassPlan {
  // Threads are worth waking.
  bool parallel = false;
  // Tokens that go over a piece of the weights at once. Their activations stay in the second-level
  // cache meanwhile, and the weights are unpacked once for all of them.
  size_t chunk_tokens = 1;
  // Strips that are multiplied at once, each a stream of memory: of up, and as many of gate; of
  // down. Fewer than the most where that leaves the busiest thread less to do.
  size_t unit_strips = 2;
  size_t group_strips = 4;
  // Pieces of work that a thread takes at a time: units of the hidden vector, groups of down's
  // strips, tokens to quantize.
  size_t unit_grain = 1;
  size_t group_grain = 1;
  size_t token_grain = 1;
};

PassPlan PlanPass(const PlanInput& input);

// The second-level cache of the CPU that this runs on, as the system tells; 0 if it does not.
size_t Level2CacheBytes();

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_PLAN_H_
