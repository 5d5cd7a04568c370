// Error-compensated rounding.
#ifndef SLUICE_QUANT_QUANTIZER_COMPENSATE_H_
#define SLUICE_QUANT_QUANTIZER_COMPENSATE_H_

#include "quant/quantizer/error_factor.h"
#include "sluice/cpu.h"
#include "sluice/matrix_view.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

enum class Scales : uint8_t {
  kSearch,  // each block's when it is reached, against what is left to round of it
  kGiven,   // those that the matrix has
};

// Rounds `target` [rows, n] into `matrix`, of that shape and a quantized format, its vectors sized.
// With kSearch, the factor's order must keep blocks together; of a number of scales that the format
// stores, each row takes the one whose block, rounded with feedback inside, adds least to the loss.
// With kGiven, any order serves. The result does not depend on the number of threads.
void RoundCompensated(const ErrorFactor& factor, MatrixView<const float> target, Scales scales,
                      QuantizedMatrix& matrix, const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_COMPENSATE_H_
