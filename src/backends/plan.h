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
};

struct PassPlan {
  // Threads are worth waking.
  bool parallel = false;
  // Tokens that go over a piece of the weights at once. Their activations stay in the second-level
  // cache meanwhile, and the weights are unpacked once for all of them.
  size_t chunk_tokens = 1;
  // Pieces of work that a thread takes at a time: rows of 32 of the hidden vector, four strips of
  // down's rows, tokens to quantize.
  size_t unit_grain = 1;
  size_t group_grain = 1;
  size_t token_grain = 1;
};

PassPlan PlanPass(const PlanInput& input);

// The second-level cache of the CPU that this runs on, as the system tells; 0 if it does not.
size_t Level2CacheBytes();

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_PLAN_H_
