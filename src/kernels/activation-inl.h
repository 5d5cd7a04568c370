// The non-linearities in vectors; operation for operation reference.cc.
#ifndef SLUICE_SRC_KERNELS_ACTIVATION_INL_H_
#define SLUICE_SRC_KERNELS_ACTIVATION_INL_H_

#include "src/kernels/activation.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// e^−(a + a_low) = p · 2^n.
template <class D, class V = hn::Vec<D>>
struct Exp {
  V p;
  hn::Vec<hn::RebindToSigned<D>> n;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE Exp<D> ExpOfMinus(D d, V a, V a_low) {
  namespace c = activation;
  const auto n = hn::NearestInt(hn::Mul(a, hn::Set(d, -c::kLog2E)));
  const V nf = hn::ConvertTo(d, n);
  V r = hn::MulAdd(nf, hn::Set(d, -c::kLn2High), hn::Neg(a));
  r = hn::MulAdd(nf, hn::Set(d, -c::kLn2Low), r);
  r = hn::Sub(r, a_low);
  V q = hn::Set(d, c::kExp[4]);
  Unroll<4>([&](auto i) SLUICE_LAMBDA { q = hn::MulAdd(q, r, hn::Set(d, c::kExp[3 - i])); });
  return {hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f)), n};
}

// 2^n for −126 <= n <= 127.
template <class D>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, hn::Vec<hn::RebindToSigned<D>> n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

template <class D>
HWY_INLINE hn::Vec<D> Value(D d, const Exp<D>& e) {
  const hn::RebindToSigned<D> di;
  return hn::Mul(e.p, PowerOfTwo(d, hn::Max(e.n, hn::Set(di, -126))));
}

template <class D>
HWY_INLINE hn::Vec<D> Scale(D d, hn::Vec<D> y, hn::Vec<hn::RebindToSigned<D>> n) {
  const auto half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(y, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(n, half)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V TimesSigmoid(D d, V factor, V x, V a, V a_low) {
  const hn::RebindToSigned<D> di;
  const Exp<D> e = ExpOfMinus(d, a, a_low);
  const auto negative = hn::Lt(x, hn::Zero(d));
  const V numerator = hn::IfThenElse(negative, hn::Mul(factor, e.p), factor);
  const V y = hn::Div(numerator, hn::Add(hn::Set(d, 1.0f), Value(d, e)));
  return Scale(d, y, hn::IfThenElseZero(hn::RebindMask(di, negative), e.n));
}

struct ReluFn {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Call(D d, V x) {
    return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), x);
  }
};

struct Relu2Fn {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Call(D d, V x) {
    const V y = ReluFn::Call(d, x);
    return hn::Mul(y, y);
  }
};

struct SiluFn {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Call(D d, V x) {
    const V clamp = hn::Set(d, activation::kExpClamp);
    return TimesSigmoid(d, hn::Max(x, hn::Neg(clamp)), x, hn::Min(hn::Abs(x), clamp), hn::Zero(d));
  }
};

struct SigmoidFn {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Call(D d, V x) {
    const V clamp = hn::Set(d, activation::kExpClamp);
    return TimesSigmoid(d, hn::Set(d, 1.0f), x, hn::Min(hn::Abs(x), clamp), hn::Zero(d));
  }
};

struct GeluTanhFn {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Call(D d, V x) {
    namespace c = activation;
    const V clamp = hn::Set(d, c::kTanhClamp);
    const V c1 = hn::Set(d, c::kTanh1High);
    const V c2 = hn::Set(d, c::kTanh2High);
    const V a = hn::Min(hn::Abs(x), clamp);
    const V s = hn::Mul(a, a);
    const V s_low = hn::MulSub(a, a, s);
    const V u = hn::Mul(c2, s);
    V u_low = hn::MulSub(c2, s, u);
    u_low = hn::MulAdd(c2, s_low, u_low);
    u_low = hn::MulAdd(hn::Set(d, c::kTanh2Low), s, u_low);
    const V t = hn::Add(c1, u);
    const V part = hn::Sub(t, c1);
    V t_low = hn::Add(hn::Sub(c1, hn::Sub(t, part)), hn::Sub(u, part));
    t_low = hn::Add(t_low, hn::Add(u_low, hn::Set(d, c::kTanh1Low)));
    const V v = hn::Mul(a, t);
    const V v_low = hn::MulAdd(a, t_low, hn::MulSub(a, t, v));
    return TimesSigmoid(d, hn::Max(x, hn::Neg(clamp)), x, v, v_low);
  }
};

struct GeluFn {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Call(D d, V x) {
    namespace c = activation;
    const V half = hn::Set(d, 0.5f);
    const V shift = hn::Set(d, c::kErfcShift);
    const V a = hn::Min(hn::Abs(x), hn::Set(d, c::kErfcClamp));
    const V s = hn::Mul(a, a);
    const V s_low = hn::MulSub(a, a, s);
    const Exp<D> e = ExpOfMinus(d, hn::Mul(half, s), hn::Mul(half, s_low));
    const V inverse = hn::Div(hn::Set(d, 1.0f), hn::Add(a, shift));
    const V t = hn::Mul(hn::Sub(a, shift), inverse);
    V r = hn::Set(d, c::kErfc[9]);
    Unroll<9>([&](auto i) SLUICE_LAMBDA { r = hn::MulAdd(r, t, hn::Set(d, c::kErfc[8 - i])); });
    r = hn::Mul(r, inverse);
    const V below = Scale(d, hn::Mul(hn::Neg(a), hn::Mul(r, e.p)), e.n);
    const V above = hn::NegMulAdd(a, hn::Mul(r, Value(d, e)), x);
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, above);
  }
};

struct IdentityFn {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Call(D, V x) {
    return x;
  }
};

// act(x); NaN stays NaN, whatever minimum and maximum make of it on this target.
template <class Fn, class D, class V = hn::Vec<D>>
HWY_INLINE V Activate(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, Fn::Call(d, x));
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_ACTIVATION_INL_H_
