// Blocks from packed matrices in memory; Model::Layer makes them from a file's.
#ifndef SLUICE_SRC_FFN_FFN_IMPL_H_
#define SLUICE_SRC_FFN_FFN_IMPL_H_

#include "sluice/error.h"
#include "sluice/ffn.h"
#include "src/format/pack.h"

namespace sluice {

// The memory that `block` points to must outlive the result. Errors: shapes or activations that do
// not fit, an unknown backend, a target or format that the backend lacks.
Expected<Ffn> CreateFfn(const BlockView& block, const FfnOptions& options);

}  // namespace sluice

#endif  // SLUICE_SRC_FFN_FFN_IMPL_H_
