// Kernels for SSE4.
#define SLUICE_HWY_TARGET HWY_SSE4
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "SSE4"

#include "src/kernels/kernel_set-inl.h"
