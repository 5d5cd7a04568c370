#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "src/base/aligned_buffer.h"
#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// A JSON string. Bytes that are not UTF-8 become U+FFFD: the header must be readable whatever a
// name from a foreign container holds.
std::string JsonText(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// `"name": {…}`, and the end of the tensor's data in `offset`.
Expected<std::string> TensorText(const SafetensorsTensor& tensor, uint64_t& offset) {
  const Expected<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
  if (!bytes) {
    return Fail(ErrorCode::kInvalidArgument, "tensor {}: {}", Quote(tensor.name),
                bytes.error().message);
  }
  const uint64_t begin = offset;
  if (__builtin_add_overflow(offset, *bytes, &offset)) {
    return Fail(ErrorCode::kInvalidArgument, "tensor {}: the data overflows 64 bits",
                Quote(tensor.name));
  }
  return std::format(R"({{"dtype":{},"shape":{},"data_offsets":[{},{}]}})", JsonText(tensor.dtype),
                     nlohmann::json(tensor.shape).dump(), begin, offset);
}

}  // namespace

Expected<std::string> SafetensorsHeader(const std::vector<SafetensorsTensor>& tensors,
                                        const std::map<std::string, std::string>& metadata) {
  std::string json;
  if (!metadata.empty()) {
    for (const auto& [key, value] : metadata) {
      json += (json.empty() ? "" : ",") + JsonText(key) + ":" + JsonText(value);
    }
    json = "\"__metadata__\":{" + json + "}";
  }
  std::set<std::string> names = {JsonText("__metadata__")};
  uint64_t offset = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const auto [name, is_new] = names.insert(JsonText(tensor.name));
    if (!is_new) {
      return Fail(ErrorCode::kInvalidArgument, "tensor {} comes twice", Quote(tensor.name));
    }
    SLUICE_ASSIGN(const std::string text, TensorText(tensor, offset));
    json += (json.empty() ? "" : ",") + *name + ":" + text;
  }
  json = "{" + json + "}";
  json.resize(RoundUp(sizeof(uint64_t) + json.size(), kAlignment) - sizeof(uint64_t), ' ');
  if (json.size() > kMaxSafetensorsHeader) {
    return Fail(ErrorCode::kInvalidArgument, "the header would take {} bytes, the format allows {}",
                json.size(), kMaxSafetensorsHeader);
  }
  const uint64_t length = json.size();
  std::string header(sizeof(length), '\0');
  std::memcpy(header.data(), &length, sizeof(length));
  return header + json;
}

SafetensorsWriter::SafetensorsWriter(std::string path, std::vector<SafetensorsTensor> tensors,
                                     AtomicFile file, size_t header_bytes)
    : path_(std::move(path)),
      tensors_(std::move(tensors)),
      file_(std::move(file)),
      header_bytes_(header_bytes) {}

Expected<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, std::vector<SafetensorsTensor> tensors,
    const std::map<std::string, std::string>& metadata) {
  const Expected<std::string> header = SafetensorsHeader(tensors, metadata);
  if (!header) return FailIn(path, header.error());
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  SLUICE_TRY(file.Write(*header));
  return SafetensorsWriter(path, std::move(tensors), std::move(file), header->size());
}

Status SafetensorsWriter::Add(std::span<const std::byte> bytes) {
  if (next_ == tensors_.size()) {
    return Fail(ErrorCode::kInvalidArgument, "{}: all {} tensors are written", path_, next_);
  }
  const SafetensorsTensor& tensor = tensors_[next_];
  SLUICE_ASSIGN(const uint64_t expected, TensorBytes(tensor.dtype, tensor.shape));
  if (bytes.size() != expected) {
    return Fail(ErrorCode::kInvalidArgument, "{}: tensor {}: {} bytes given, {} {} takes {}", path_,
                Quote(tensor.name), bytes.size(), tensor.dtype, ShapeText(tensor.shape), expected);
  }
  SLUICE_TRY(file_.Write(bytes));
  ++next_;
  return {};
}

Status SafetensorsWriter::ReplaceMetadata(const std::map<std::string, std::string>& metadata) {
  SLUICE_ASSIGN(const std::string header, SafetensorsHeader(tensors_, metadata));
  if (header.size() != header_bytes_) {
    return Fail(ErrorCode::kInvalidArgument, "{}: the new header takes {} bytes, the old one {}",
                path_, header.size(), header_bytes_);
  }
  return file_.WriteAt(0, std::as_bytes(std::span(header)));
}

Status SafetensorsWriter::Finish() {
  if (next_ < tensors_.size()) {
    return Fail(ErrorCode::kInvalidArgument, "{}: tensor {} is missing", path_,
                Quote(tensors_[next_].name));
  }
  return file_.Commit();
}

Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                        const std::vector<std::span<const std::byte>>& data,
                        const std::map<std::string, std::string>& metadata) {
  if (tensors.size() != data.size()) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {} tensors described, {} given", path,
                tensors.size(), data.size());
  }
  SLUICE_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::Create(path, tensors, metadata));
  for (const std::span<const std::byte> bytes : data) SLUICE_TRY(writer.Add(bytes));
  return writer.Finish();
}

}  // namespace sluice
