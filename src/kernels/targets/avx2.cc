// Kernels for AVX2.
#define SLUICE_HWY_TARGET HWY_AVX2
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "AVX2"

#include "src/kernels/kernel_set-inl.h"
