// Float weights: kT tokens × kS strips.
#ifndef SLUICE_SRC_KERNELS_FLOAT_TILE_INL_H_
#define SLUICE_SRC_KERNELS_FLOAT_TILE_INL_H_

#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"
#include "src/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// acc = fma(w, x, acc), k ascending. kBf16: half the bytes, widened in registers.
template <bool kBf16, size_t kT, size_t kS>
struct FloatTile {
  static constexpr size_t kC = kS * kVectors;

  static void Run(const DotArgs& args, size_t strip, size_t token) {
    const FloatTag df;
    VF acc[kT][kC];
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA { acc[t][c] = hn::Zero(df); });
    const size_t stride = args.x->float_stride;
    const float* x = args.x->floats + (args.first_token + token) * stride;
    for (size_t k = 0; k < args.layout.cols; ++k) {
      VF w[kC];
      Unroll<kC>([&](auto c) SLUICE_LAMBDA {
        w[c] = LoadScales<kBf16>(args.weights[strip + c / kVectors], k, c % kVectors);
      });
      Unroll<kT>([&](auto t) SLUICE_LAMBDA {
        const VF xk = hn::Set(df, x[t * stride + k]);
        Unroll<kC>([&](auto c) SLUICE_LAMBDA { acc[t][c] = hn::MulAdd(w[c], xk, acc[t][c]); });
      });
    }
    float* out = args.out + token * kDotStride + strip * kStripRows;
    UnrollTile<kT, kC>([&](auto t, auto c) SLUICE_LAMBDA {
      hn::Store(acc[t][c], df, out + t * kDotStride + c * kLanes);
    });
  }
};

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_FLOAT_TILE_INL_H_
