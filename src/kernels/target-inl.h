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

// The loops over tokens and vectors of a register tile must disappear, or the tile lives in memory.
#define SLUICE_UNROLL HWY_PRAGMA(GCC unroll 16)

namespace sluice::HWY_NAMESPACE::SLUICE_VARIANT {
namespace hn = hwy::HWY_NAMESPACE;
}

#endif  // SLUICE_SRC_KERNELS_TARGET_INL_H_
