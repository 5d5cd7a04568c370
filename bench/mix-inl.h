// The loops of instructions.cc for one instruction set. Included once for each, inside a namespace
// that has the compiler's target switched and defines
//
//   Ints, Floats                     registers of int32 and float
//   kMixChains, kDotChains           sums that are computed side by side: enough to hide latency,
//   few
//                                    enough that all operands stay in registers
//   kValuesPerDot                    values of K that one dot instruction multiplies for each sum
//   Dot(sum, w, x), ToFloat(sum), Mul(a, b), Fma(a, b, c)
//
// Operands pass through empty assembly, so that the compiler cannot see that all chains compute the
// same, and leaves the instructions alone.

inline double Lanes() { return static_cast<double>(sizeof(Ints) / sizeof(int32_t)); }

template <size_t kBlock, bool kBothScales>
double Blocks(size_t rounds) {
  constexpr size_t kDots = kBlock / kValuesPerDot;
  Ints w = Ints{} + 0x01020304;
  Ints x = Ints{} + 0x03020105;
  Ints start = Ints{};
  Floats weight_scale = Floats{} + 0.5f;
  Floats x_scale = Floats{} + 0x1p-20f;
  Floats sums[kMixChains] = {};
  for (size_t i = 0; i < rounds; ++i) {
    Ints s[kMixChains];
#pragma GCC unroll 16
    for (size_t c = 0; c < kMixChains; ++c) {
      s[c] = start;
      asm volatile("" : "+" SLUICE_BENCH_REGISTER(s[c]));
    }
#pragma GCC unroll 32
    for (size_t j = 0; j < kDots; ++j) {
#pragma GCC unroll 16
      for (size_t c = 0; c < kMixChains; ++c) s[c] = Dot(s[c], w, x);
    }
#pragma GCC unroll 16
    for (size_t c = 0; c < kMixChains; ++c) {
      Floats scale = weight_scale;
      if constexpr (kBothScales) {
        scale = Mul(weight_scale, x_scale);
        asm volatile("" : "+" SLUICE_BENCH_REGISTER(x_scale));
      }
      sums[c] = Fma(ToFloat(s[c]), scale, sums[c]);
    }
  }
  for (Floats& sum : sums) asm volatile("" : "+" SLUICE_BENCH_REGISTER(sum));
  return 2.0 * Lanes() * static_cast<double>(kValuesPerDot * kDots * kMixChains * rounds);
}

inline double Dots(size_t rounds) {
  constexpr size_t kSteps = 8;
  Ints w = Ints{} + 0x01020304;
  Ints x = Ints{} + 0x03020105;
  Ints s[kDotChains] = {};
  for (Ints& sum : s) asm volatile("" : "+" SLUICE_BENCH_REGISTER(sum));
  for (size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kSteps; ++j) {
#pragma GCC unroll 16
      for (size_t c = 0; c < kDotChains; ++c) s[c] = Dot(s[c], w, x);
    }
  }
  for (Ints& sum : s) asm volatile("" : "+" SLUICE_BENCH_REGISTER(sum));
  return 2.0 * Lanes() * static_cast<double>(kValuesPerDot * kSteps * kDotChains * rounds);
}

inline double Fmas(size_t rounds) {
  constexpr size_t kSteps = 8;
  Floats a = Floats{} + 0.5f;
  Floats s[kDotChains] = {};
  for (Floats& sum : s) asm volatile("" : "+" SLUICE_BENCH_REGISTER(sum));
  for (size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 8
    for (size_t j = 0; j < kSteps; ++j) {
#pragma GCC unroll 16
      for (size_t c = 0; c < kDotChains; ++c) s[c] = Fma(s[c], a, a);
    }
  }
  for (Floats& sum : s) asm volatile("" : "+" SLUICE_BENCH_REGISTER(sum));
  return 2.0 * Lanes() * static_cast<double>(kSteps * kDotChains * rounds);
}
