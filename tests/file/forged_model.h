// A packed model taken apart, so that a test can change anything and put it together again.
#ifndef SLUICE_TESTS_FILE_FORGED_MODEL_H_
#define SLUICE_TESTS_FILE_FORGED_MODEL_H_

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/file/checksum.h"
#include "src/file/safetensors.h"

namespace sluice::test {

inline std::string ChecksumOf(const std::string& bytes) {
  return ChecksumText(Checksum(std::as_bytes(std::span(bytes))));
}

class ForgedModel {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
    std::string bytes;
  };

  explicit ForgedModel(const std::string& path) {
    const SafetensorsFile file = SafetensorsFile::Open(path).value();
    metadata = file.metadata();
    description = nlohmann::json::parse(metadata.at("sluice"));
    for (const SafetensorsEntry& e : file.entries()) {
      tensors.push_back(
          {e.name, e.dtype, e.shape,
           std::string(reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size())});
    }
  }

  Tensor& tensor(const std::string& name) {
    for (Tensor& t : tensors) {
      if (t.name == name) return t;
    }
    throw std::runtime_error("no tensor " + name);
  }
  std::string& bytes(const std::string& name) { return tensor(name).bytes; }
  // The description of a matrix of the layer at position `index`.
  nlohmann::json& matrix(size_t index, const std::string& name) {
    return description["layers"][index]["matrices"][name];
  }

  // Makes the tensors' checksums right, where the description has the matrix.
  void Seal() {
    for (nlohmann::json& layer : description["layers"]) {
      const std::string prefix = "layers." + layer["layer"].dump() + ".";
      for (auto& [name, matrix] : layer["matrices"].items()) {
        for (auto& [plane, checksum] : matrix["checksums"].items()) {
          checksum = ChecksumOf(bytes(prefix + name + "." + plane));
        }
      }
    }
  }

  // The description as it is, its own checksum right.
  void Write(const std::string& path) {
    metadata["sluice"] = description.dump();
    metadata["sluice_checksum"] = ChecksumOf(metadata["sluice"]);
    WriteMetadata(path);
  }

  // `metadata` as it is.
  void WriteMetadata(const std::string& path) const {
    std::vector<SafetensorsTensor> headers;
    std::vector<std::span<const std::byte>> data;
    for (const Tensor& t : tensors) {
      headers.push_back({t.name, t.dtype, t.shape});
      data.push_back(std::as_bytes(std::span(t.bytes)));
    }
    const Status status = WriteSafetensors(path, headers, data, metadata);
    if (!status) throw std::runtime_error(status.error().message);
  }

  std::map<std::string, std::string> metadata;
  nlohmann::json description;
  std::vector<Tensor> tensors;
};

}  // namespace sluice::test

#endif  // SLUICE_TESTS_FILE_FORGED_MODEL_H_
