// What a model's predictions are worth, and how far two models' predictions are apart.
#ifndef SLUICE_QUANT_DECODER_LOSSES_H_
#define SLUICE_QUANT_DECODER_LOSSES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "quant/decoder/decoder.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/matrix_view.h"

namespace sluice {

// One prediction: of the token after a stream's row.
struct TokenLoss {
  double nll = 0;         // −ln q(the token that follows)
  double kl = 0;          // Σ p·ln(p/q) over the vocabulary, in nats, p being the first stream's
  size_t top = 0;         // the token at which q is largest; the first of equals
  bool same_top = false;  // p is largest there too
};

// By stream, then by prediction: of every row of every window but its last, in order.
using Losses = std::vector<std::vector<TokenLoss>>;

// `streams`: at least one, after the last layer, [ids.size(), d_model] each; the first is what the
// others are compared with. `windows` as in Tokens. Logits exist only in tiles: all sums over the
// vocabulary are taken as the output matrix goes by, in double precision. `progress` is called
// after each slice of the vocabulary. Errors: NaN or Inf in the output matrix.
Expected<Losses> MeasureLosses(const Decoder& decoder, std::span<const int32_t> ids,
                               std::span<const size_t> windows,
                               std::span<const MatrixView<const float>> streams,
                               const ThreadPool* pool, const std::function<void()>& progress = {});

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_LOSSES_H_
