// The GGUF container of ggml and llama.cpp: metadata and tensors in one file.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef SLUICE_QUANT_CHECKPOINT_GGUF_H_
#define SLUICE_QUANT_CHECKPOINT_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/checkpoint/block_formats.h"
#include "sluice/error.h"

namespace sluice {

// What a GGUF file begins with.
inline constexpr std::string_view kGgufMagic = "GGUF";

// The numbers are the file's.
enum class GgufType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// One metadata value, still in the file. Arrays are not expanded: a tokenizer's are large.
struct GgufValue {
  GgufType type = GgufType::kUint8;  // of the elements, if it is an array
  bool array = false;
  uint64_t count = 1;
  // The elements, one after the other; of a string, its characters.
  std::span<const std::byte> bytes;
};

struct GgufTensor {
  std::string name;
  const BlockFormat* format = nullptr;  // never null
  std::vector<uint64_t> shape;          // outermost first, the reverse of the file's order
  std::span<const std::byte> bytes;
};

// A GGUF file whose structure has been checked against its size. Everything refers into the bytes
// it was parsed from.
class Gguf {
 public:
  // Versions 2 and 3, little-endian. Reads the header alone, in time and memory proportional to it.
  // Every count, length, product and offset in it is checked before use; errors name `path`, the
  // place in the file and the values that disagree. The whole of `bytes` is the file.
  static Expected<Gguf> Parse(const std::string& path, std::span<const std::byte> bytes);

  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // Null if there is no such key.
  const GgufValue* Find(std::string_view key) const;
  // Nothing if there is no such key; an error if its value is something else.
  Expected<std::optional<std::string_view>> String(std::string_view key) const;
  Expected<std::optional<uint64_t>> Unsigned(std::string_view key) const;
  Expected<std::optional<double>> Number(std::string_view key) const;  // of any numeric type
  // A number, or an array of them; none is negative.
  Expected<std::optional<std::vector<uint64_t>>> UnsignedArray(std::string_view key) const;

 private:
  friend class GgufParser;

  std::string path_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_GGUF_H_
