// Kernels for NEON: those of NEON_WITHOUT_AES under the name of the CPUs that have AES, which they
// do not use; compiled by itself this came out as the same number of instructions everywhere.
#include "src/kernels/kernels.h"

namespace sluice {

namespace N_NEON_WITHOUT_AES::plain {
const Kernels& GetKernels();
}

namespace N_NEON::plain {

const Kernels& GetKernels() {
  static const Kernels kernels = [] {
    Kernels k = N_NEON_WITHOUT_AES::plain::GetKernels();
    k.target = "NEON";
    return k;
  }();
  return kernels;
}

}  // namespace N_NEON::plain
}  // namespace sluice
