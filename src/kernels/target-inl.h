// Opens and closes the code of one instruction set.
//
// Each file in targets/ compiles all kernels for one target: it names the target, then includes
// kernel_set-inl.h. (Highway's foreach_target would compile all of them in one translation unit;
// one each builds in parallel, and a target of our own is one more file.) A target of our own is
// one of Highway's plus instruction-set extensions that Highway does not dispatch on; it has a
// namespace of its own inside Highway's, because the same inline function compiled for two
// instruction sets must have two names.
//
//   SLUICE_HWY_TARGET   Highway's target, e.g. HWY_AVX2
//   SLUICE_VARIANT      the inner namespace
//   SLUICE_TARGET_NAME  as users know it: "AVX2_VNNI"
//   SLUICE_EXTENSION    optional: GCC's name of the extension, e.g. "avxvnni"
//   SLUICE_DOT4_…       optional: which 4-way dot product the extension brings (dot4-inl.h)
//
// The instruction set is an attribute of functions, never a flag of the file: inline functions of
// the standard library must not leak into other objects compiled for a CPU that users lack.
#ifndef SLUICE_SRC_KERNELS_TARGET_INL_H_
#define SLUICE_SRC_KERNELS_TARGET_INL_H_

#include <cstddef>
#include <type_traits>
#include <utility>

#include "hwy/detect_targets.h"
// Highway picks its target here; foreach_target.h does the same.
#undef HWY_TARGET
#define HWY_TARGET SLUICE_HWY_TARGET
#include "hwy/highway.h"

#ifdef SLUICE_EXTENSION
#if HWY_COMPILER_CLANG
#define SLUICE_PUSH_EXTENSION HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR "," SLUICE_EXTENSION)
#else  // GCC adds to what is in force
#define SLUICE_PUSH_EXTENSION HWY_PUSH_ATTRIBUTES(SLUICE_EXTENSION)
#endif
#define SLUICE_POP_EXTENSION HWY_POP_ATTRIBUTES
#else  // (Each on a line of its own: GCC drops what follows a pragma in the same expansion.)
#define SLUICE_PUSH_EXTENSION
#define SLUICE_POP_EXTENSION
#endif

// Of a lambda that must vanish into its caller, instruction set included.
#if !HWY_COMPILER_CLANG
#define SLUICE_LAMBDA __attribute__((always_inline))
#elif defined(SLUICE_EXTENSION)
#define SLUICE_LAMBDA __attribute__((target(HWY_TARGET_STR "," SLUICE_EXTENSION), always_inline))
#else
#define SLUICE_LAMBDA __attribute__((target(HWY_TARGET_STR), always_inline))
#endif

// Of a function whose instructions are to stay in the order of the source until registers are
// chosen. GCC moves loads up before that, as a core that executes in order likes it, and then needs
// more registers than there are: copies of pointers, and sums on the stack.
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_ARM_A64
#define SLUICE_SOURCE_ORDER __attribute__((optimize("no-schedule-insns")))
#else
#define SLUICE_SOURCE_ORDER
#endif

HWY_BEFORE_NAMESPACE();
SLUICE_PUSH_EXTENSION
namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {
namespace hn = hwy::HWY_NAMESPACE;

// body(0) … body(kN − 1), each index a constant. Register tiles are arrays, and only indices that
// are constant before the optimizer runs keep an array in registers: with loops and an unroll
// pragma GCC kept a copy of every accumulator on the stack, stored in each step.
template <size_t kN, class Body>
HWY_INLINE void Unroll(const Body& body) {
  [&]<size_t... kI>(std::index_sequence<kI...>) SLUICE_LAMBDA {
    (body(std::integral_constant<size_t, kI>()), ...);
  }(std::make_index_sequence<kN>());
}

// body(r, c) for all of a kRows × kCols tile.
template <size_t kRows, size_t kCols, class Body>
HWY_INLINE void UnrollTile(const Body& body) {
  Unroll<kRows>([&](auto r)
                    SLUICE_LAMBDA { Unroll<kCols>([&](auto c) SLUICE_LAMBDA { body(r, c); }); });
}

}  // namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT
SLUICE_POP_EXTENSION
HWY_AFTER_NAMESPACE();

#endif  // SLUICE_SRC_KERNELS_TARGET_INL_H_
