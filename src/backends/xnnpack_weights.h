// From our packed weights to what XNNPACK's create functions read, or why that cannot be.
#ifndef SLUICE_SRC_BACKENDS_XNNPACK_WEIGHTS_H_
#define SLUICE_SRC_BACKENDS_XNNPACK_WEIGHTS_H_

#include <cstddef>

#include "sluice/error.h"
#include "sluice/format.h"
#include "src/backends/xnnpack_operators.h"
#include "src/format/layout.h"
#include "src/format/pack.h"

namespace sluice {

// K up to which the int32 sums of XNNPACK's int8 kernels cannot overflow: a weight is at least −128
// and an activation less its zero point at most 255, so 65536·128·255 < 2^31.
inline constexpr size_t kXnnMaxInt8K = 65536;

// The operator made for a format, whether or not it works here. Errors name `matrix`, the format
// and what XNNPACK lacks for it.
Expected<XnnKernel> XnnKernelFor(Matrix matrix, const PackedLayout& layout);

// The same integers and scales for `kernel`, which is XnnKernelFor's or, for qc4w weights, kQc8w:
// an int4 value is an int8 value too. K is padded with weight 0 to the packed layout's
// padded_cols(), which blocks divide. Errors: a scale that XNNPACK does not take and that no other
// (integers, scale) can stand for.
Expected<XnnWeights> ToXnnWeights(Matrix matrix, const PackedMatrixView& packed, XnnKernel kernel);

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_XNNPACK_WEIGHTS_H_
