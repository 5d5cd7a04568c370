// Who the error of a block's output belongs to: tokens, and neurons.
#ifndef SLUICE_QUANT_ANALYSIS_ERROR_SHARES_H_
#define SLUICE_QUANT_ANALYSIS_ERROR_SHARES_H_

#include <cstddef>
#include <vector>

#include "quant/analysis/double_matrix.h"
#include "sluice/cpu.h"
#include "sluice/matrix_view.h"

namespace sluice {

struct TokenShare {
  size_t token = 0;
  double relative_l2 = 0;  // of this token's output
  double share = 0;        // of Σ ‖ŷ − y‖² over all tokens
};

// The `count` tokens with the largest relative_l2, descending; NaN is the largest. What is not
// finite makes shares NaN.
std::vector<TokenShare> WorstTokens(const DoubleMatrix& reference, MatrixView<const float> actual,
                                    size_t count);

// Neuron j read as a memory (Geva et al. 2021, "Transformer Feed-Forward Layers Are Key-Value
// Memories"): its key is row j of gate and of up, its value v is column j of down, and it adds h·v
// to the output, h being its hidden activation. Its share of the error e = ŷ − y is
// Σ ⟨ĥ·v̂ − h·v, e⟩ / Σ ‖e‖² over all tokens; the shares of all neurons add up to 1, and one may be
// negative where a neuron makes up for others.
struct NeuronShare {
  size_t neuron = 0;
  double share = 0;
  double key = 0;    // of it, Σ ⟨(ĥ − h)·v, e⟩: gate, up and activations
  double value = 0;  // of it, Σ ⟨ĥ·(v̂ − v), e⟩: down
  size_t token = 0;  // to which it contributes most
};

// The down projection, as trained and as quantized: hidden vectors [t, d_ff] that it multiplies,
// and its weights [d_model, d_ff].
struct DownSide {
  const DoubleMatrix& hidden;
  MatrixView<const float> weights;
};

// The `count` neurons with the largest share, descending. `error` [t, d_model] is the difference of
// the two outputs. Empty if it is zero or not finite. Memory: four times tokens · d_ff values.
std::vector<NeuronShare> WorstNeurons(const DownSide& trained, const DownSide& quantized,
                                      const DoubleMatrix& error, size_t count,
                                      const ThreadPool* pool);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_ERROR_SHARES_H_
