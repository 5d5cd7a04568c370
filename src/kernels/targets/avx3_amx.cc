// Kernels for AVX3_AMX: those of AVX3_DL, with the matrix unit for dot products of many tokens.
#define SLUICE_HWY_TARGET HWY_AVX3_DL
#define SLUICE_VARIANT amx
#define SLUICE_EXTENSION "amx-tile,amx-int8"

#include "src/kernels/dot_amx-inl.h"
#include "src/kernels/named.h"

namespace sluice::N_AVX3_DL {

namespace plain {
const Kernels& GetKernels();
}

namespace amx {

namespace {
bool BothConstant(WeightFormat format, ActivationFormat x) {
  return format.quantized() && !format.blocked() && x == ActivationFormat::kRow;
}

size_t TileHeight(WeightFormat format, ActivationFormat x) {
  return BothConstant(format, x) ? 0 : plain::GetKernels().tile_height(format, x);
}

void Dot(const DotArgs& args) {
  if (!BothConstant(args.layout.format, args.x->format)) return plain::GetKernels().dot(args);
  args.layout.format.type == WeightType::kInt4 ? DotTiles<true>(args) : DotTiles<false>(args);
}
}  // namespace

const Kernels& GetKernels() {
  static const Kernels kernels = [] {
    Kernels k = Named("AVX3_AMX", plain::GetKernels());
    k.tile_height = TileHeight;
    k.dot = Dot;
    return k;
  }();
  return kernels;
}

}  // namespace amx
}  // namespace sluice::N_AVX3_DL
