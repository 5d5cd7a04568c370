// OpenBLAS would start threads of its own for each call, beside those of sluice's pool.
#ifndef SLUICE_QUANT_LINALG_BLAS_THREADS_H_
#define SLUICE_QUANT_LINALG_BLAS_THREADS_H_

#include <cblas.h>

namespace sluice {

// To be called before any call of BLAS or LAPACK.
inline void UseOneBlasThread() {
  [[maybe_unused]] static const bool done = [] {
    openblas_set_num_threads(1);
    return true;
  }();
}

}  // namespace sluice

#endif  // SLUICE_QUANT_LINALG_BLAS_THREADS_H_
