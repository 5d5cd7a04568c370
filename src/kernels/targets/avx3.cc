// Kernels for AVX3.
#define SLUICE_HWY_TARGET HWY_AVX3
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "AVX3"

#include "src/kernels/kernel_set-inl.h"
