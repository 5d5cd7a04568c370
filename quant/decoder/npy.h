// NumPy's array files, of integers.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#ifndef SLUICE_QUANT_DECODER_NPY_H_
#define SLUICE_QUANT_DECODER_NPY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice {

// What a .npy file begins with.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct NpyArray {
  size_t item_bytes = 0;               // 4 or 8: int32 or int64, little-endian
  std::vector<uint64_t> shape;         // outermost first; C order
  std::span<const std::byte> bytes{};  // exactly the array
};

// `bytes` is the whole file; the result refers to it. Versions 1 to 3 of the format. Errors name
// the file and what is wrong: a header that is not NumPy's, another type or order, a shape that
// does not match the file's length.
Expected<NpyArray> ParseNpy(const std::string& path, std::span<const std::byte> bytes);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_NPY_H_
