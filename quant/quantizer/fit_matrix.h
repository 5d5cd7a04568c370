// One matrix by any method, checked on tokens that the method did not see.
#ifndef SLUICE_QUANT_QUANTIZER_FIT_MATRIX_H_
#define SLUICE_QUANT_QUANTIZER_FIT_MATRIX_H_

#include <string>

#include "quant/quantizer/loss_moments.h"
#include "quant/quantizer/method.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

struct FitOptions {
  Method method = Method::kGptq;
  int rounds = 3;       // of refinement, see Refine
  bool rescale = true;  // up against down, where CanRescale; not by rtn
};

struct MatrixFit {
  QuantizedMatrix matrix;
  Method method = Method::kRtn;  // the one whose result this is
  std::string note;              // why it is not the one that was asked for; else empty
  double damping_step = 0;       // of gptq, see ErrorFactor
  // The layer's squared error per token on the held-out moments: of this matrix, and of rtn's.
  double loss = 0;
  double loss_rtn = 0;
};

// Quantizes `weights` [out, in] to `format`. `fit` are the moments that the method may use,
// `held_out` those of other tokens, on which its result is judged: where it is worse than rtn's
// there, or where no factorization succeeds, mse's is taken, and where that is worse too, rtn's;
// `note` says so. Float formats and rtn use no moments; theirs may then be empty (n = 0), and no
// loss is computed.
//
// Errors: those of QuantizeRtn; moments that are not finite, or of another width.
Expected<MatrixFit> FitMatrix(MatrixView<const float> weights, WeightFormat format,
                              const LossMoments& fit, const LossMoments& held_out,
                              const FitOptions& options, const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_FIT_MATRIX_H_
