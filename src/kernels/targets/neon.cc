// Kernels for NEON.
#define SLUICE_HWY_TARGET HWY_NEON
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "NEON"

#include "src/kernels/kernel_set-inl.h"
