#include "src/file/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>
#include <format>

namespace sluice {

uint64_t Checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string ChecksumText(uint64_t checksum) { return std::format("{:016x}", checksum); }

std::optional<uint64_t> ParseChecksum(std::string_view text) {
  uint64_t checksum = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, checksum, 16);
  if (text.size() != 16 || error != std::errc() || stop != end) return std::nullopt;
  return checksum;
}

}  // namespace sluice
