// The checksum of packed model files.
#ifndef SLUICE_SRC_FILE_CHECKSUM_H_
#define SLUICE_SRC_FILE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

// XXH3-64 with seed 0: about as fast as memory. It finds damage, not forgery.
uint64_t Checksum(std::span<const std::byte> bytes);

// 16 lower-case hexadecimal digits, the most significant first, so that the width is fixed.
std::string ChecksumText(uint64_t checksum);
std::optional<uint64_t> ParseChecksum(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_CHECKSUM_H_
