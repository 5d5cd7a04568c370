// Kernels for NEON_WITHOUT_AES.
#define SLUICE_HWY_TARGET HWY_NEON_WITHOUT_AES
#define SLUICE_VARIANT plain
#define SLUICE_TARGET_NAME "NEON_WITHOUT_AES"

#include "src/kernels/kernel_set-inl.h"
