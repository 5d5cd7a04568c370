// What happens to the results of the dot products: act(gate) ⊙ up, and the store.
#ifndef SLUICE_SRC_KERNELS_ELEMENTWISE_INL_H_
#define SLUICE_SRC_KERNELS_ELEMENTWISE_INL_H_

#include <bit>

#include "src/kernels/activation-inl.h"
#include "src/kernels/kernels.h"
#include "src/kernels/target-inl.h"

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {

// Calls body(i, lanes) over [0, n) for whole vectors, then once for what is left.
template <class D, class Body>
HWY_INLINE void ForEachVector(D d, size_t n, const Body& body) {
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadUpTo(D d, const float* p, size_t lanes) {
  return lanes == hn::Lanes(d) ? hn::LoadU(d, p) : hn::LoadN(d, p, lanes);
}

template <class D>
HWY_INLINE void StoreUpTo(D d, hn::Vec<D> v, float* p, size_t lanes) {
  if (lanes == hn::Lanes(d)) {
    hn::StoreU(v, d, p);
  } else {
    hn::StoreN(v, d, p, lanes);
  }
}

// One case of combine. Which operands there are is a constant, so that the loop holds no branches;
// pointers are copied, since a vector store may alias anything.
template <class Fn, bool kGated, bool kBiases>
bool CombineCase(const CombineArgs& all) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  using V = hn::Vec<decltype(d)>;
  const CombineArgs args = all;
  const auto biased = [&](const float* row, const float* bias, size_t i, size_t lanes)
                          SLUICE_LAMBDA {
                            const V v = LoadUpTo(d, row + i, lanes);
                            if constexpr (kBiases) {
                              return bias == nullptr ? v : hn::Add(v, LoadUpTo(d, bias + i, lanes));
                            } else {
                              return v;
                            }
                          };
  // The largest magnitude as an integer: NaN and ∞ order above every finite value.
  auto max_bits = hn::Zero(di);
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* up_row = args.up + t * args.stride;
    const float* gate_row = args.gate + (kGated ? t * args.stride : 0);
    float* out = args.out + t * args.out_stride;
    ForEachVector(d, args.n, [&](size_t i, size_t lanes) SLUICE_LAMBDA {
      const V up = biased(up_row, args.up_bias, i, lanes);
      V h;
      if constexpr (kGated) {
        h = hn::Mul(Activate<Fn>(d, biased(gate_row, args.gate_bias, i, lanes)), up);
      } else {
        h = Activate<Fn>(d, up);
      }
      StoreUpTo(d, h, out + i, lanes);
      // Lanes beyond the end were loaded as 0 and hold act(0), which is finite.
      max_bits = hn::Max(max_bits, hn::BitCast(di, hn::Abs(h)));
    });
  }
  return hn::ReduceMax(di, max_bits) < 0x7F800000;
}

template <class Fn>
bool CombineWith(const CombineArgs& args) {
  const bool biases = args.gate_bias != nullptr || args.up_bias != nullptr;
  if (args.gate != nullptr) {
    return biases ? CombineCase<Fn, true, true>(args) : CombineCase<Fn, true, false>(args);
  }
  return biases ? CombineCase<Fn, false, true>(args) : CombineCase<Fn, false, false>(args);
}

inline bool Combine(const CombineArgs& args) {
  switch (args.activation) {
    case Activation::kRelu:
      return CombineWith<ReluFn>(args);
    case Activation::kRelu2:
      return CombineWith<Relu2Fn>(args);
    case Activation::kGelu:
      return CombineWith<GeluFn>(args);
    case Activation::kGeluTanh:
      return CombineWith<GeluTanhFn>(args);
    case Activation::kSilu:
      return CombineWith<SiluFn>(args);
    case Activation::kSigmoid:
      return CombineWith<SigmoidFn>(args);
    case Activation::kIdentity:
      return CombineWith<IdentityFn>(args);
  }
  return false;
}

inline void Finish(const FinishArgs& all) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const FinishArgs args = all;
  const auto nan = hn::BitCast(d, hn::Set(du, kCanonicalNan));
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* row = args.row + t * args.row_stride;
    float* y = args.y + t * args.y_stride;
    if (args.poisoned != nullptr && args.poisoned[t] != 0) {
      ForEachVector(d, args.n,
                    [&](size_t i, size_t lanes) HWY_ATTR { StoreUpTo(d, nan, y + i, lanes); });
      continue;
    }
    ForEachVector(d, args.n, [&](size_t i, size_t lanes) HWY_ATTR {
      auto v = LoadUpTo(d, row + i, lanes);
      if (args.bias != nullptr) v = hn::Add(v, LoadUpTo(d, args.bias + i, lanes));
      if (args.add_to_residual) v = hn::Add(LoadUpTo(d, y + i, lanes), v);
      StoreUpTo(d, hn::IfThenElse(hn::IsNaN(v), nan, v), y + i, lanes);
    });
  }
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_ELEMENTWISE_INL_H_
