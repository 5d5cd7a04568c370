// Kernels for NEON: those of NEON_WITHOUT_AES under the name of the CPUs that have AES, which they
// do not use; compiled by itself this came out as the same number of instructions everywhere.
#include "src/kernels/named.h"

namespace sluice {

namespace N_NEON_WITHOUT_AES::plain {
const Kernels& GetKernels();
}

namespace N_NEON::plain {

const Kernels& GetKernels() {
  static const Kernels kernels = Named("NEON", N_NEON_WITHOUT_AES::plain::GetKernels());
  return kernels;
}

}  // namespace N_NEON::plain
}  // namespace sluice
