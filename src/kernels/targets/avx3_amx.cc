// Kernels for AVX3_AMX: those of AVX3_DL, with the matrix unit for dot products of many tokens.
#define SLUICE_HWY_TARGET HWY_AVX3_DL
#define SLUICE_VARIANT amx
#define SLUICE_EXTENSION "amx-tile,amx-int8"

#include "src/kernels/dot_amx-inl.h"

namespace sluice::N_AVX3_DL {

namespace plain {
const Kernels& GetKernels();
}

namespace amx {

namespace {
void Dot(const DotArgs& args) {
  switch (args.layout.format.type) {
    case WeightType::kInt4:
      return DotTiles<true>(args);
    case WeightType::kInt8:
      return DotTiles<false>(args);
    default:
      return plain::GetKernels().dot(args);
  }
}
}  // namespace

const Kernels& GetKernels() {
  static const Kernels kernels = [] {
    Kernels k = plain::GetKernels();
    k.target = "AVX3_AMX";
    k.dot = Dot;
    return k;
  }();
  return kernels;
}

}  // namespace amx
}  // namespace sluice::N_AVX3_DL
