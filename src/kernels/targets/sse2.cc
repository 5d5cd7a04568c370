// Kernels for SSE2.
#define SLUICE_HWY_TARGET HWY_SSE2
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "SSE2"

#include "src/kernels/kernel_set-inl.h"
