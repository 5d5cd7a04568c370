// Lowering the loss of a matrix that is already rounded.
#ifndef SLUICE_QUANT_QUANTIZER_REFINE_H_
#define SLUICE_QUANT_QUANTIZER_REFINE_H_

#include "quant/quantizer/loss_moments.h"
#include "sluice/cpu.h"
#include "sluice/matrix_view.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

struct RefineOptions {
  double damping = 0;  // added to H's diagonal
  int rounds = 3;      // each: scales, then integers
  int passes = 2;      // over the integers of a row, in each round
};

// Alternates between the two halves of what was chosen, row by row, for the loss e·(H +
// damping·I)·eᵀ with e = target − value:
//
//   scales    for fixed integers the loss is a quadratic form in a row's scales; its minimum is
//             solved for, then rounded to what the format stores one scale after the other, the
//             rest making up for each rounding;
//   integers  for fixed scales, coordinate descent: each weight in turn goes to the integer that is
//             best while all others stay.
//
// No step raises a row's loss but for the rounding of scales; a row ends with the best it had. The
// result does not depend on the number of threads.
void Refine(MatrixView<const float> target, const LossMoments& moments,
            const RefineOptions& options, QuantizedMatrix& matrix, const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_REFINE_H_
