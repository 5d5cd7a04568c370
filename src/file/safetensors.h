// The safetensors container: checkpoints come in it, packed models are written in it.
// Format: https://github.com/huggingface/safetensors
#ifndef SLUICE_SRC_FILE_SAFETENSORS_H_
#define SLUICE_SRC_FILE_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"
#include "src/base/atomic_file.h"
#include "src/base/mapped_file.h"

namespace sluice {

// The reference implementation's limit on a header.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "U8", …
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;
};

// A mapped file whose header has been checked against its size: every entry's bytes lie inside the
// file, match shape × dtype, do not overlap, leave no hole, and there is at least one. An entry of
// a dtype that this library does not know is kept, its shape unchecked: a checkpoint may hold
// tensors that nobody here reads. Names and metadata are valid UTF-8. Nothing but the header is
// read.
class SafetensorsFile {
 public:
  static Expected<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }  // by offset
  // Null if there is none.
  const SafetensorsEntry* Find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

// Describes a tensor that a writer will be given.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
};

// Bits and bytes of one element; 0 for a dtype this library does not know. A dtype narrower than a
// byte (F4, F6_E2M3, F6_E3M2) has bits, but 0 bytes.
size_t DtypeBits(std::string_view dtype);
size_t DtypeBytes(std::string_view dtype);

// Shape × dtype in bytes. Errors: an unknown dtype, an overflow, a part of a byte.
Expected<uint64_t> TensorBytes(std::string_view dtype, std::span<const uint64_t> shape);

// "[2, 3]": a shape as error messages show it.
std::string ShapeText(std::span<const uint64_t> shape);

// The 8-byte length and the JSON header, padded with spaces so that both together are a multiple of
// 64 bytes and the first tensor is aligned. Tensors lie in the given order, without gaps. Errors: a
// name twice, a size that is unknown or overflows, a header beyond kMaxSafetensorsHeader.
Expected<std::string> SafetensorsHeader(const std::vector<SafetensorsTensor>& tensors,
                                        const std::map<std::string, std::string>& metadata);

// Writes a file tensor by tensor; it appears under its name only in Finish.
class SafetensorsWriter {
 public:
  static Expected<SafetensorsWriter> Create(
      const std::string& path, std::vector<SafetensorsTensor> tensors,
      const std::map<std::string, std::string>& metadata = {});

  // The next tensor, in the order of Create. Its size must be that of its shape.
  Status Add(std::span<const std::byte> bytes);
  // Replaces the metadata by one whose header is equally long: values that are known only when all
  // tensors have been seen, such as checksums of fixed width.
  Status ReplaceMetadata(const std::map<std::string, std::string>& metadata);
  // Errors if a tensor is missing.
  Status Finish();

 private:
  SafetensorsWriter(std::string path, std::vector<SafetensorsTensor> tensors, AtomicFile file,
                    size_t header_bytes);
  std::string path_;
  std::vector<SafetensorsTensor> tensors_;
  AtomicFile file_;
  size_t header_bytes_ = 0;
  size_t next_ = 0;
};

// A whole file in one call, for a few tensors in memory; tensors and data in the same order.
Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                        const std::vector<std::span<const std::byte>>& data,
                        const std::map<std::string, std::string>& metadata = {});

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_SAFETENSORS_H_
