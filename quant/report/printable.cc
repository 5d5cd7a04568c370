#include "quant/report/printable.h"

#include <algorithm>
#include <cstdint>
#include <format>

namespace sluice {
namespace {

// Length of the UTF-8 sequence that starts at text[i]; 0 if it is not valid. Overlong forms,
// surrogates and values beyond U+10FFFF are not.
size_t SequenceLength(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t first = byte(i);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || i + length > text.size()) return 0;
  for (size_t k = i + 1; k < i + length; ++k) {
    if ((byte(k) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(i + 1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

// C0 and C1 controls and DEL; the bidirectional overrides that reorder what follows; the line and
// paragraph separators.
bool IsControl(std::string_view sequence) {
  const auto first = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7F;
  const auto second = static_cast<uint8_t>(sequence[1]);
  if (sequence.size() == 2) return first == 0xC2 && second < 0xA0;
  if (sequence.size() != 3 || first != 0xE2) return false;
  const auto third = static_cast<uint8_t>(sequence[2]);
  return (second == 0x80 && third >= 0xA8 && third <= 0xAE) ||
         (second == 0x81 && third >= 0xA6 && third <= 0xA9);
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = SequenceLength(text, i);
    const std::string_view sequence = text.substr(i, std::max<size_t>(length, 1));
    if (length != 0 && !IsControl(sequence)) {
      out += sequence;
    } else {
      for (const char c : sequence) out += std::format("\\x{:02x}", static_cast<uint8_t>(c));
    }
    i += sequence.size();
  }
  return out;
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace sluice
