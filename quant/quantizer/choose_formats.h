// A format for each matrix of each layer within a budget.
#ifndef SLUICE_QUANT_QUANTIZER_CHOOSE_FORMATS_H_
#define SLUICE_QUANT_QUANTIZER_CHOOSE_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

// What one format of a matrix takes, and what it costs the model.
struct FormatOption {
  WeightFormat format;
  uint64_t bytes = 0;  // stored, padding included
  double loss = 0;     // predicted: the model's KL divergence, in nats per token
};

struct MatrixOptions {
  size_t layer = 0;
  Matrix matrix = Matrix::kGate;
  uint64_t weights = 0;
  std::vector<FormatOption> options;  // at least one
};

// One of these.
struct FormatBudget {
  std::optional<double> bits = {};     // per weight, over all matrices
  std::optional<uint64_t> bytes = {};  // of all matrices
  std::optional<double> loss = {};     // predicted: the fewest bytes with no more than this

  bool given() const { return bits || bytes || loss; }
};

struct FormatChoice {
  std::vector<size_t> picked;  // into each matrix's options
  uint64_t bytes = 0;
  double bits = 0;  // per weight
  double loss = 0;  // the sum of the picked ones'
};

// Losses of matrices are taken to add up. Every matrix starts with its smallest option; then the
// step that lowers the loss most for the bytes it adds is taken, and again, as long as the budget
// allows (with a loss as the budget: until it is met). Options that cost more bytes and no less
// loss, or that lie above the line between two others, are passed over. Errors: a budget that the
// smallest, or with a loss the best, options do not meet: both figures are named.
Expected<FormatChoice> ChooseFormats(std::span<const MatrixOptions> matrices,
                                     const FormatBudget& budget);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_CHOOSE_FORMATS_H_
