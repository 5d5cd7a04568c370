// Choosing integers and scales for a matrix.
#ifndef SLUICE_QUANT_QUANTIZER_QUANTIZER_H_
#define SLUICE_QUANT_QUANTIZER_QUANTIZER_H_

#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

// Round to nearest: per block (or row), scale = amax / 7 or amax / 127 rounded to what the format
// stores, then the integers against the rounded scale. Where the block is exactly integer · s for a
// storable s = amax / k (k = 1…8 in int4, 1…127 in int8), that s is found, and the block comes back
// bit for bit. A block whose amax is below kMinAmax (of weights; documented there) becomes zeros
// with scale 0. `weights` is [out, in] without NaN or Inf. Deterministic for any number of threads.
Expected<QuantizedMatrix> QuantizeRtn(MatrixView<const float> weights, WeightFormat format,
                                      const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_QUANTIZER_H_
