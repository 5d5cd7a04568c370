// The non-linearities: formulas, constants, accuracy. One sequence of operations each, the same in
// scalar (reference.cc) and vector code (activation-inl.h), so that all targets with FMA agree bit
// for bit.
//
//   relu       max(0, x)
//   relu2      max(0, x)²
//   gelu       x · Φ(x), Φ the normal distribution function (exact, erf)
//   gelu_tanh  0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) = x · σ(2·√(2/π)·(x + 0.044715·x³))
//   silu       x · σ(x)
//   sigmoid    σ(x) = 1 / (1 + e^−x)
//   identity   x
//
// Sources: GELU, https://arxiv.org/abs/1606.08415; SiLU/Swish, https://arxiv.org/abs/1710.05941;
// gated forms, https://arxiv.org/abs/2002.05202.
//
// NaN gives NaN; +∞ gives +∞ (sigmoid: 1); −∞ gives the limit, −0 for gelu, gelu_tanh, silu, 0 for
// relu, relu2, sigmoid. The largest error over all floats, in units of the last place of the exact
// result (of the smallest subnormal where the result is subnormal), measured against double
// precision by tests/kernels/activation_test.cc on targets with FMA: kMaxUlp below.
//
// How: everything rests on e^−a for a ≥ 0, kept as p · 2^n. For negative x the power of two
// multiplies last and in two steps, so that results keep full precision down into the subnormals
// (e^−a alone would have lost it at a = 87). Arguments that are squares are carried as a
// sum of two floats: at a = 100 an error of one ulp in the argument would be 100 ulp in the result.
#ifndef SLUICE_SRC_KERNELS_ACTIVATION_H_
#define SLUICE_SRC_KERNELS_ACTIVATION_H_

#include "sluice/format.h"

namespace sluice {

// Bound on the error in ulp, see above; 0: correctly rounded.
constexpr double MaxUlp(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
    case Activation::kIdentity:
      return 0.0;
    case Activation::kRelu2:
      return 0.5;
    case Activation::kSilu:
    case Activation::kSigmoid:
    case Activation::kGeluTanh:
      return 3.0;
    case Activation::kGelu:
      return 5.5;
  }
  return 0.0;
}

namespace activation {

// e^−a: n = round(−a · log2 e), r = −a − n·ln 2 in two steps (n · kLn2High is exact), then
// e^r = 1 + (r + r²·(kExp[0] + r·(kExp[1] + …))). The minimax fit is within 0.18 ulp.
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -0x1.bd0106p-13f;
inline constexpr float kExp[] = {0x1p-1f, 0x1.5554dep-3f, 0x1.5555bap-5f, 0x1.120b5cp-7f,
                                 0x1.6c69f4p-10f};
// Beyond this every function of e^−a has reached its limit, and 2^n still fits in two factors.
inline constexpr float kExpClamp = 128.0f;

// gelu_tanh: v = a·(c1 + c2·a²), c1 = 2·√(2/π), c2 = 0.044715·c1, each as high + low.
inline constexpr float kTanh1High = 0x1.988454p+0f;
inline constexpr float kTanh1Low = -0x1.857936p-25f;
inline constexpr float kTanh2High = 0x1.2444f2p-4f;
inline constexpr float kTanh2Low = 0x1.49b16ap-29f;
// v(11) = 112: e^−v · 11 is below half the smallest subnormal.
inline constexpr float kTanhClamp = 11.0f;

// gelu: Φ(−a) = e^(−a²/2) · G(t) / (a + 3.5), t = (a − 3.5) / (a + 3.5), within 0.14 ulp for a in
// [0, 15]. (G tends to 1/√(2π); fitting Φ(−a)·e^(a²/2) itself, which tends to 0, lost 3 bits to
// cancellation.)
inline constexpr float kErfcShift = 3.5f;
inline constexpr float kErfc[] = {
    0x1.7d241ap-1f, -0x1.21914ep-1f, 0x1.42feccp-2f,   -0x1.db5a92p-4f, 0x1.1d2d4ep-6f,
    0x1.a992aap-8f, -0x1.9fde7cp-9f, -0x1.038b2cp-11f, 0x1.b6a4f8p-12f, 0x1.c7e57ep-14f};
inline constexpr float kErfcClamp = 15.0f;

}  // namespace activation
}  // namespace sluice

#endif  // SLUICE_SRC_KERNELS_ACTIVATION_H_
