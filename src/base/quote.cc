#include "src/base/quote.h"

#include <cstddef>
#include <format>
#include <iterator>

namespace sluice {
namespace {

constexpr size_t kLongest = 200;

void AppendEscaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      std::format_to(std::back_inserter(out), "\\x{:02X}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
}

// Moves a cut off the middle of a UTF-8 sequence.
size_t CharacterStart(std::string_view text, size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

std::string Quote(std::string_view text) {
  std::string out = "\"";
  if (text.size() <= kLongest) {
    AppendEscaped(out, text);
  } else {
    AppendEscaped(out, text.substr(0, CharacterStart(text, kLongest / 2)));
    out += "…";
    AppendEscaped(out, text.substr(CharacterStart(text, text.size() - kLongest / 2)));
  }
  out += '"';
  return out;
}

}  // namespace sluice
