// Kernels for AVX3_DL.
#define SLUICE_HWY_TARGET HWY_AVX3_DL
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "AVX3_DL"

#include "src/kernels/kernel_set-inl.h"
