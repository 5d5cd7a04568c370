// The floating-point environment that the numerics contract is stated in.
#ifndef SLUICE_SRC_BASE_FP_ENVIRONMENT_H_
#define SLUICE_SRC_BASE_FP_ENVIRONMENT_H_

#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace sluice {

// While it lives, the calling thread rounds to nearest and neither flushes nor ignores subnormals;
// then the caller's environment returns. A program linked with -ffast-math, or one that set FTZ for
// its audio thread, therefore gets the same bits as any other.
class FpEnvironment {
 public:
  FpEnvironment() : saved_(Get()) {
    if ((saved_ & kMask) != kDefault) Set((saved_ & ~kMask) | kDefault);
  }
  ~FpEnvironment() {
    if ((saved_ & kMask) != kDefault) Set(saved_);
  }
  FpEnvironment(const FpEnvironment&) = delete;
  FpEnvironment& operator=(const FpEnvironment&) = delete;

 private:
#if defined(__x86_64__) || defined(__i386__)
  using Word = uint32_t;
  // FTZ (15), rounding (14:13), exception masks (12:7), DAZ (6). Exceptions stay masked: a trap in
  // the middle of a kernel helps nobody.
  static constexpr Word kMask = 0xFFC0;
  static constexpr Word kDefault = 0x1F80;
  static Word Get() { return _mm_getcsr(); }
  static void Set(Word w) { _mm_setcsr(w); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  // AHP (26), DN (25), FZ (24), rounding (23:22), FZ16 (19), trap enables (15, 12:8). DN stays off:
  // the stores canonicalise NaN themselves.
  static constexpr Word kMask = 0x07C89F00;
  static constexpr Word kDefault = 0;
  static Word Get() {
    Word w;
    asm volatile("mrs %0, fpcr" : "=r"(w));
    return w;
  }
  static void Set(Word w) { asm volatile("msr fpcr, %0" : : "r"(w)); }
#elif defined(__arm__)
  using Word = uint32_t;
  static constexpr Word kMask = 0x07C89F00;
  static constexpr Word kDefault = 0;
  static Word Get() {
    Word w;
    asm volatile("vmrs %0, fpscr" : "=r"(w));
    return w;
  }
  static void Set(Word w) { asm volatile("vmsr fpscr, %0" : : "r"(w)); }
#else
#error "The floating-point environment of this architecture is not known"
#endif
  Word saved_;
};

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_FP_ENVIRONMENT_H_
