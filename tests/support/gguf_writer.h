// GGUF files for tests, well formed or not. Written from the format's description, apart from the
// reader that they test.
#ifndef SLUICE_TESTS_SUPPORT_GGUF_WRITER_H_
#define SLUICE_TESTS_SUPPORT_GGUF_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::test {

// The bytes of numbers, in the machine's order (little-endian).
template <class T>
std::string BytesOf(std::span<const T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}
template <class T>
std::string BytesOf(const T& value) {
  return BytesOf(std::span<const T>(&value, 1));
}

// Numbers that GGUF gives to the types used here.
inline constexpr uint32_t kGgufU32 = 4, kGgufI32 = 5, kGgufF32 = 6, kGgufString = 8, kGgufArray = 9,
                          kGgufU64 = 10;
inline constexpr uint32_t kGgmlF32 = 0, kGgmlF16 = 1, kGgmlQ40 = 2, kGgmlQ80 = 8;

class GgufWriter {
 public:
  static std::string Text(std::string_view text) {
    return BytesOf<uint64_t>(text.size()) + std::string(text);
  }

  // A metadata value given as its bytes, whatever they are.
  GgufWriter& Raw(std::string_view key, uint32_t type, std::string_view value) {
    values_ += Text(key) + BytesOf(type) + std::string(value);
    ++value_count_;
    return *this;
  }
  GgufWriter& U32(std::string_view key, uint32_t value) {
    return Raw(key, kGgufU32, BytesOf(value));
  }
  GgufWriter& String(std::string_view key, std::string_view value) {
    return Raw(key, kGgufString, Text(value));
  }
  GgufWriter& U32s(std::string_view key, const std::vector<uint32_t>& values) {
    return Raw(key, kGgufArray,
               BytesOf(kGgufU32) + BytesOf<uint64_t>(values.size()) +
                   BytesOf(std::span<const uint32_t>(values)));
  }
  GgufWriter& Strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes = BytesOf(kGgufString) + BytesOf<uint64_t>(values.size());
    for (const std::string& v : values) bytes += Text(v);
    return Raw(key, kGgufArray, bytes);
  }

  // `shape` outermost first; the file has it the other way round. `offset` is where the header says
  // the data lies; by default where it does.
  GgufWriter& Tensor(std::string_view name, std::vector<uint64_t> shape, uint32_t type,
                     std::string_view data, std::optional<uint64_t> offset = {}) {
    infos_ += Text(name) + BytesOf<uint32_t>(static_cast<uint32_t>(shape.size()));
    for (size_t i = shape.size(); i-- > 0;) infos_ += BytesOf(shape[i]);
    infos_ += BytesOf(type) + BytesOf<uint64_t>(offset.value_or(data_.size()));
    ++tensor_count_;
    data_ += data;
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
    return *this;
  }
  GgufWriter& F32(std::string_view name, std::vector<uint64_t> shape,
                  const std::vector<float>& values) {
    return Tensor(name, std::move(shape), kGgmlF32, BytesOf(std::span<const float>(values)));
  }

  // Call before the tensors.
  GgufWriter& Alignment(uint32_t alignment) {
    alignment_ = alignment;
    return U32("general.alignment", alignment);
  }
  GgufWriter& Version(uint32_t version) {
    version_ = version;
    return *this;
  }
  // Counts other than the true ones.
  GgufWriter& Counts(uint64_t tensors, uint64_t values) {
    tensor_count_ = tensors;
    value_count_ = values;
    return *this;
  }

  std::string Header() const {
    return "GGUF" + BytesOf(version_) + BytesOf(tensor_count_) + BytesOf(value_count_) + values_ +
           infos_;
  }
  std::string Build() const {
    std::string file = Header();
    file.resize((file.size() + alignment_ - 1) / alignment_ * alignment_);
    return file + data_;
  }

 private:
  uint32_t version_ = 3;
  size_t alignment_ = 32;
  uint64_t tensor_count_ = 0;
  uint64_t value_count_ = 0;
  std::string values_;
  std::string infos_;
  std::string data_;
};

}  // namespace sluice::test

#endif  // SLUICE_TESTS_SUPPORT_GGUF_WRITER_H_
