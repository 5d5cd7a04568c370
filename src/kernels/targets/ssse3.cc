// Kernels for SSSE3.
#define SLUICE_HWY_TARGET HWY_SSSE3
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "SSSE3"

#include "src/kernels/kernel_set-inl.h"
