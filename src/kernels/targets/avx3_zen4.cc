// Kernels for AVX3_ZEN4.
#define SLUICE_HWY_TARGET HWY_AVX3_ZEN4
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "AVX3_ZEN4"

#include "src/kernels/kernel_set-inl.h"
