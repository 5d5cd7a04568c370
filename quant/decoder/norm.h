// Root mean square normalisation: https://arxiv.org/abs/1910.07467.
#ifndef SLUICE_QUANT_DECODER_NORM_H_
#define SLUICE_QUANT_DECODER_NORM_H_

#include <span>
#include <vector>

#include "sluice/cpu.h"
#include "sluice/matrix_view.h"

namespace sluice {

struct RmsNorm {
  std::vector<float> weights;  // [n]; what multiplies, whatever offset the file has it with
  double eps = 0;

  // 1 / √(mean(x²) + eps).
  float Factor(std::span<const float> x) const;
  // out = x / √(mean(x²) + eps) ⊙ weights, one row; out may be x.
  void Apply(std::span<const float> x, std::span<float> out) const;
  // The same for every row.
  void Apply(MatrixView<const float> x, MatrixView<float> out, const ThreadPool* pool) const;
};

// stream += y, or stream += norm(y) with y overwritten; null: no norm.
void AddToStream(const RmsNorm* norm, MatrixView<float> y, MatrixView<float> stream,
                 const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_NORM_H_
