// A block computed by XNNPACK's fully-connected operators, the elementwise part by our kernels.
#ifndef SLUICE_SRC_BACKENDS_XNNPACK_H_
#define SLUICE_SRC_BACKENDS_XNNPACK_H_

#include <memory>

#include "sluice/error.h"
#include "src/backends/backend.h"

namespace sluice {

// The same integers and scales as the other backends, in formats qc8w, qc4w, qb4w and f32, each
// matrix its own operator; XNNPACK keeps a repacked copy of the weights. Quantized matrices take
// XNNPACK's own activations, int8 per token and asymmetric, whatever the block says; this and
// XNNPACK's arithmetic put the backend outside the numerics contract; subnormals count as 0, and a
// token with values beyond about 1e36 / K may come out as Inf or NaN. What NaN and Inf in x do and
// how the residual is added are as everywhere. Passes on one runner take turns: operators keep the
// state of their run.
//
// Errors: what XNNPACK lacks for a matrix, named; a forced target, which XNNPACK does not know.
Expected<std::unique_ptr<BlockRunner>> CreateXnnpackRunner(const BlockView& block,
                                                           const RunnerOptions& options);

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_XNNPACK_H_
