// The numerics contract as scalar code: what every vector kernel must reproduce bit for bit.
// Written to be read, not to be fast.
#ifndef SLUICE_SRC_KERNELS_REFERENCE_H_
#define SLUICE_SRC_KERNELS_REFERENCE_H_

#include "src/kernels/kernels.h"

namespace sluice::reference {

// act(x), one value.
float Activate(Activation activation, float x);

// The operations of Kernels (src/kernels/kernels.h).
bool QuantizeBlocks(const QuantizeArgs& args);
bool QuantizeRow(const float* x, size_t n, int8_t* values, float* scale, int32_t* offsets,
                 int32_t* total_offset);
bool AllFinite(const float* x, size_t n);
void Dot(const DotArgs& args);
bool Combine(const CombineArgs& args);
void Finish(const FinishArgs& args);

// All of them, under the name "SCALAR".
const Kernels& ReferenceKernels();

}  // namespace sluice::reference

#endif  // SLUICE_SRC_KERNELS_REFERENCE_H_
