#include "quant/quantizer/fit_matrix.h"

#include <format>
#include <utility>
#include <vector>

#include "quant/quantizer/compensate.h"
#include "quant/quantizer/error_factor.h"
#include "quant/quantizer/quantizer.h"
#include "quant/quantizer/refine.h"
#include "quant/quantizer/scale_search.h"
#include "src/base/status.h"

namespace sluice {
namespace {

class Fitter {
 public:
  Fitter(MatrixView<const float> weights, const LossMoments& fit, const LossMoments& held_out,
         const FitOptions& options, const ThreadPool* pool)
      : weights_(weights), fit_(fit), held_out_(held_out), options_(options), pool_(pool) {}

  MatrixFit Run(QuantizedMatrix rtn) {
    MatrixFit result;
    result.loss_rtn = Loss(rtn);
    const auto take = [&](Method method, QuantizedMatrix&& matrix, double loss) {
      result.method = method;
      result.matrix = std::move(matrix);
      result.loss = loss;
    };
    if (options_.method == Method::kGptq) {
      if (auto gptq = Gptq(rtn, result)) {
        const double loss = Loss(*gptq);
        if (loss <= result.loss_rtn) {
          take(Method::kGptq, *std::move(gptq), loss);
          return result;
        }
        result.note = Worse(Method::kGptq, loss, result.loss_rtn);
      }
    }
    if (options_.method != Method::kRtn) {
      QuantizedMatrix mse = rtn;
      SearchScales(weights_, fit_, mse, pool_);
      const double loss = Loss(mse);
      if (loss <= result.loss_rtn) {
        take(Method::kMse, std::move(mse), loss);
        return result;
      }
      result.note += (result.note.empty() ? "" : "; ") + Worse(Method::kMse, loss, result.loss_rtn);
    }
    take(Method::kRtn, std::move(rtn), result.loss_rtn);
    return result;
  }

 private:
  static std::string Worse(Method method, double loss, double rtn) {
    return std::format("{}'s loss on held-out tokens is {:.4g}, rtn's {:.4g}", Name(method), loss,
                       rtn);
  }

  // Nothing, with a note in `result`, where H cannot be factorized.
  std::optional<QuantizedMatrix> Gptq(const QuantizedMatrix& rtn, MatrixFit& result) {
    QuantizedMatrix matrix = rtn;
    const bool blocked = matrix.format.blocked();
    const auto factor = Factorize(fit_, OrderColumns(fit_, blocked ? matrix.block() : 1));
    if (!factor) {
      result.note = "the inputs' second moments are zero or cannot be factorized";
      return std::nullopt;
    }
    result.damping_step = factor->damping_step;
    const std::vector<float> target =
        ShiftedWeights(weights_, fit_, *factor, matrix.block(), pool_);
    const MatrixView<const float> view(target.data(), weights_.rows, weights_.cols);
    // One scale for a whole row cannot wait for errors: it is searched before.
    if (!blocked) SearchScales(view, fit_, matrix, pool_);
    RoundCompensated(*factor, view, blocked ? Scales::kSearch : Scales::kGiven, matrix, pool_);
    Refine(view, fit_, {.damping = factor->damping, .rounds = options_.rounds}, matrix, pool_);
    return matrix;
  }

  double Loss(const QuantizedMatrix& matrix) const {
    std::vector<float> difference = Dequantize(matrix);
    for (size_t r = 0; r < weights_.rows; ++r) {
      const auto row = weights_.row(r);
      for (size_t c = 0; c < row.size(); ++c) difference[r * row.size() + c] -= row[c];
    }
    return MeanLoss({difference.data(), weights_.rows, weights_.cols}, held_out_, pool_);
  }

  MatrixView<const float> weights_;
  const LossMoments& fit_;
  const LossMoments& held_out_;
  const FitOptions& options_;
  const ThreadPool* pool_;
};

Status CheckMoments(const LossMoments& moments, size_t n) {
  if (moments.n != n) {
    return Fail(ErrorCode::kInvalidArgument, "calibration has {} values a token, the matrix {}",
                moments.n, n);
  }
  if (!IsFinite(moments)) {
    return Fail(ErrorCode::kInvalidArgument,
                "the calibration's second moments are not finite: an input is NaN, infinite, or "
                "beyond 1e19");
  }
  return {};
}

}  // namespace

Expected<MatrixFit> FitMatrix(MatrixView<const float> weights, WeightFormat format,
                              const LossMoments& fit, const LossMoments& held_out,
                              const FitOptions& options, const ThreadPool* pool) {
  SLUICE_ASSIGN(QuantizedMatrix rtn, QuantizeRtn(weights, format, pool));
  if (!format.quantized() || (options.method == Method::kRtn && fit.n == 0)) {
    MatrixFit result;
    result.matrix = std::move(rtn);
    return result;
  }
  SLUICE_TRY(CheckMoments(fit, weights.cols));
  SLUICE_TRY(CheckMoments(held_out, weights.cols));
  return Fitter(weights, fit, held_out, options, pool).Run(std::move(rtn));
}

}  // namespace sluice
