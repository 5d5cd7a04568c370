// All kernels of one target; included once by each file in targets/.
#include "src/kernels/dot-inl.h"
#include "src/kernels/elementwise-inl.h"
#include "src/kernels/quantize-inl.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Each target has its own namespace, so this is one definition in each of the files that include
// it.
const Kernels& GetKernels() {  // NOLINT(misc-definitions-in-headers)
  // (32-bit NEON has fused multiply-add, but flushes subnormals and divides by approximation.)
  static constexpr Kernels kernels = {SLUICE_TARGET_NAME,
                                      HWY_NATIVE_FMA != 0 && !HWY_ARCH_ARM_V7,
                                      QuantizeBlocks,
                                      QuantizeRow,
                                      AllFinite,
                                      TileHeight,
                                      kDotColumns,
                                      HWY_MAX(kRowStrips, kTileStrips),
                                      Dot,
                                      Combine,
                                      Finish};
  return kernels;
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();
