// Kernels for NEON_DOTPROD.
#define SLUICE_HWY_TARGET HWY_NEON_WITHOUT_AES
#define SLUICE_VARIANT dotprod
#define SLUICE_TARGET_NAME "NEON_DOTPROD"
#define SLUICE_EXTENSION "+dotprod"
#define SLUICE_DOT4_SDOT

#include "src/kernels/kernel_set-inl.h"
