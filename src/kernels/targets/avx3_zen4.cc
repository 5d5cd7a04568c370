// Kernels for AVX3_ZEN4: those of AVX3_DL under the name of the CPU. What this target adds is BF16
// products, which round where the contract does not; compiled by itself it came out as the same
// instructions in another order.
#include "src/kernels/named.h"

namespace sluice {

namespace N_AVX3_DL::plain {
const Kernels& GetKernels();
}

namespace N_AVX3_ZEN4::plain {

const Kernels& GetKernels() {
  static const Kernels kernels = Named("AVX3_ZEN4", N_AVX3_DL::plain::GetKernels());
  return kernels;
}

}  // namespace N_AVX3_ZEN4::plain
}  // namespace sluice
