// Kernels for AVX2_VNNI.
#define SLUICE_HWY_TARGET HWY_AVX2
#define SLUICE_VARIANT vnni
#define SLUICE_TARGET_NAME "AVX2_VNNI"
#define SLUICE_EXTENSION "avxvnni"
#define SLUICE_DOT4_AVX_VNNI

#include "src/kernels/kernel_set-inl.h"
