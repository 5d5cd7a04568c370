// The tokens that a model is run on.
#ifndef SLUICE_QUANT_DECODER_TOKENS_H_
#define SLUICE_QUANT_DECODER_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/error.h"

namespace sluice {

// Token ids, cut into windows that know nothing of each other: the first token of each has position
// 0, and nothing is put before it.
struct Tokens {
  std::string source;        // the file
  std::vector<int32_t> ids;  // of all windows, one after the other
  // Lengths; they add up to ids.size(). All are `context` but those at the end of a text.
  std::vector<size_t> windows;

  size_t longest_window() const;
  // Every token of a window but its first is predicted.
  size_t predictions() const { return ids.size() - windows.size(); }
};

// Consecutive windows that hold at most `most` tokens, or one window that is longer.
struct TokenGroup {
  size_t first_token = 0;
  std::span<const int32_t> ids;
  std::span<const size_t> windows;
};
std::vector<TokenGroup> GroupWindows(const Tokens& tokens, size_t most);

// Ids from a file: a .npy of int32 or int64, [n] or [texts, length], or a safetensors file with a
// tensor `tokens` of I32 or I64. Rows are texts of their own: no window reaches from one into the
// next. `context`: at least 1. Errors: another type or shape, no token, an id that is not in
// [0, vocabulary) (its index is named), more than 2^31 − 1 tokens; a damaged file.
Expected<Tokens> ReadTokens(const std::string& path, size_t context, size_t vocabulary);

// A text as the tokens of a byte-level model: byte b is token b. Errors: a vocabulary other than
// 256, an empty file.
Expected<Tokens> ReadText(const std::string& path, size_t context, size_t vocabulary);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_TOKENS_H_
