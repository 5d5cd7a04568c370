// XNNPACK, through sluice's own backend: the same weights, activations int8 per token and
// asymmetric. The backend refuses to run an operator that computes nonsense on this CPU.
#include "bench/rivals/rivals.h"
#include "bench/sluice_library.h"

namespace sluice::bench {
namespace {

bool Takes(const BlockFormat& format) {
  if (format.activations) return false;  // it has its own
  const WeightFormat& w = format.weights;
  return w.type == WeightType::kInt4 || (w.type == WeightType::kInt8 && !w.blocked());
}

}  // namespace

Library Xnnpack() {
  return {"xnnpack", Takes, /*excused_errors=*/1.5, /*ring_per_threads=*/true,
          [](const Request& request) {
            Request own = request;
            own.target = {};
            return CreateSluice(own, "xnnpack");
          }};
}

}  // namespace sluice::bench
