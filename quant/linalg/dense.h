// Dense products and factorizations by BLAS and LAPACK, one thread a call: callers split the work,
// at fixed places, so that results do not depend on the number of threads.
#ifndef SLUICE_QUANT_LINALG_DENSE_H_
#define SLUICE_QUANT_LINALG_DENSE_H_

#include <cstddef>
#include <span>

#include "sluice/cpu.h"
#include "sluice/matrix_view.h"

namespace sluice {

enum class Transpose : bool { kNo, kYes };

// c = alpha · op(a)·op(b) + beta · c, all row-major. Shapes: c [m, n], op(a) [m, k], op(b) [k, n].
// k = 0 leaves beta · c. On the calling thread.
void Multiply(float alpha, MatrixView<const float> a, Transpose ta, MatrixView<const float> b,
              Transpose tb, float beta, MatrixView<float> c);

// The lower factor L of a = L·Lᵀ in place of a [n, n], row-major, of which the lower triangle is
// read; what stands above the diagonal afterwards is undefined. False if a is not positive definite
// or not finite.
bool Cholesky(std::span<double> a, size_t n);

// b ← b·(L·Lᵀ)⁻¹ for the rows of b [rows, n], split by rows.
void SolveRows(std::span<const double> factor, size_t n, std::span<double> b,
               const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_LINALG_DENSE_H_
