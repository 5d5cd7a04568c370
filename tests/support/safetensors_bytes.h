// safetensors files for tests, written from the format's description and not by the library.
#ifndef SLUICE_TESTS_SUPPORT_SAFETENSORS_BYTES_H_
#define SLUICE_TESTS_SUPPORT_SAFETENSORS_BYTES_H_

#include <bit>
#include <cstdint>
#include <format>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/half.h"

namespace sluice::test {

class SafetensorsBytes {
 public:
  SafetensorsBytes& Tensor(std::string_view name, std::string_view dtype,
                           const std::vector<uint64_t>& shape, std::string_view data) {
    std::string dims;
    for (const uint64_t n : shape) dims += std::format("{}{}", dims.empty() ? "" : ",", n);
    header_ += std::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                           header_.empty() ? "" : ",", name, dtype, dims, data_.size(),
                           data_.size() + data.size());
    data_ += data;
    return *this;
  }
  SafetensorsBytes& F32(std::string_view name, const std::vector<uint64_t>& shape,
                        const std::vector<float>& values) {
    return Tensor(name, "F32", shape,
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  SafetensorsBytes& Bf16(std::string_view name, const std::vector<uint64_t>& shape,
                         const std::vector<float>& values) {
    std::string data;
    for (const float v : values) {
      const uint16_t bits = ToBf16(v).bits;
      data.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    }
    return Tensor(name, "BF16", shape, data);
  }

  std::string Build() const {
    const std::string header = "{" + header_ + "}";
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data_;
  }

 private:
  std::string header_;
  std::string data_;
};

}  // namespace sluice::test

#endif  // SLUICE_TESTS_SUPPORT_SAFETENSORS_BYTES_H_
