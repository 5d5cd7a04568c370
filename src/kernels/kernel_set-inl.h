// All kernels of one target; included once by each file in targets/.
#include "src/kernels/dot-inl.h"
#include "src/kernels/elementwise-inl.h"
#include "src/kernels/quantize-inl.h"
#include "src/kernels/reference.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Each target has its own namespace, so this is one definition in each of the files that include
// it.
const Kernels& GetKernels() {  // NOLINT(misc-definitions-in-headers)
  static constexpr Kernels kernels = [] {
    Kernels k = {SLUICE_TARGET_NAME,
                 HWY_NATIVE_FMA != 0,
                 QuantizeBlocks,
                 QuantizeRow,
                 AllFinite,
                 TileHeight,
                 kDotColumns,
                 HWY_MAX(kRowStrips, kTileStrips),
                 Dot,
                 Combine,
                 Finish};
#if HWY_ARCH_ARM_V7
    // NEON of 32 bits flushes subnormals and has no division, so that its dot products come close
    // only, and what needs a division is left to scalar code. Not tuned.
    k.exact = false;
    k.quantize_blocks = reference::QuantizeBlocks;
    k.quantize_row = reference::QuantizeRow;
    k.combine = reference::Combine;
    k.finish = reference::Finish;
#endif
    return k;
  }();
  return kernels;
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();
