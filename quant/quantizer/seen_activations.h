// Activations as quantized matrices see them.
#ifndef SLUICE_QUANT_QUANTIZER_SEEN_ACTIVATIONS_H_
#define SLUICE_QUANT_QUANTIZER_SEEN_ACTIVATIONS_H_

#include "sluice/cpu.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"

namespace sluice {

// Rounds each row of x [t, n] to int8 and back, in place, by the kernels that run the packed file;
// nothing for kFloat. A row that is not finite stays what it is.
void RoundActivations(MatrixView<float> x, ActivationFormat format, const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_SEEN_ACTIVATIONS_H_
