// Kernels for NEON_I8MM: those of NEON_DOTPROD, with the matrix instruction for two tokens and
// more.
#define SLUICE_HWY_TARGET HWY_NEON_WITHOUT_AES
#define SLUICE_VARIANT i8mm
#define SLUICE_EXTENSION "+dotprod+i8mm"
#define SLUICE_DOT4_SDOT
#define SLUICE_DOT4_SMMLA

#include "src/kernels/dot-inl.h"
#include "src/kernels/named.h"

namespace sluice::N_NEON_WITHOUT_AES {

namespace dotprod {
const Kernels& GetKernels();
}

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace i8mm {

namespace {
void DotTilesOrRows(const DotArgs& args) {
  // (A float matrix may share its activations with one that has tiles.)
  if (args.tiles == nullptr || !args.layout.format.quantized()) {
    return dotprod::GetKernels().dot(args);
  }
  args.layout.format.type == WeightType::kInt4 ? DotQuantized<Int4Weights>(args)
                                               : DotQuantized<Int8Weights>(args);
}
}  // namespace

const Kernels& GetKernels() {
  static const Kernels kernels = [] {
    Kernels k = Named("NEON_I8MM", dotprod::GetKernels());
    k.tile_columns = kDotColumns;
    k.dot = DotTilesOrRows;
    return k;
  }();
  return kernels;
}

}  // namespace i8mm
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();
}  // namespace sluice::N_NEON_WITHOUT_AES
