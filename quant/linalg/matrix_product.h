// Products of large matrices in float, by OpenBLAS, which picks its kernels for the CPU it runs on.
//
// Work is split over sluice's own threads, by rows and in pieces of a fixed size, and OpenBLAS is
// held to one thread: one pool decides how many CPUs are used, and the result does not depend on
// how many those are. It does depend on the CPU: these products are outside the numerics contract.
#ifndef SLUICE_QUANT_LINALG_MATRIX_PRODUCT_H_
#define SLUICE_QUANT_LINALG_MATRIX_PRODUCT_H_

#include <span>

#include "sluice/cpu.h"
#include "sluice/matrix_view.h"

namespace sluice {

// out = x·wᵀ · factor + bias: x [t, in], w [out, in], bias [out] or empty, out [t, out]. `out`
// overlaps neither x nor w. Null pool: the calling thread only, so that it may be called from
// inside a ParallelFor.
void MultiplyTransposed(MatrixView<const float> x, MatrixView<const float> w,
                        std::span<const float> bias, MatrixView<float> out, const ThreadPool* pool,
                        float factor = 1.0f);

// out = a·b: a [m, k], b [k, n], out [m, n], on the calling thread.
void Multiply(MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> out);

}  // namespace sluice

#endif  // SLUICE_QUANT_LINALG_MATRIX_PRODUCT_H_
