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
// file, match shape × dtype, do not overlap, leave no hole.
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

// Bytes of one element; 0 for a dtype this library does not know.
size_t DtypeBytes(std::string_view dtype);

// A whole file in one call, for a few tensors in memory; tensors and data in the same order.
Status WriteSafetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                        const std::vector<std::span<const std::byte>>& data,
                        const std::map<std::string, std::string>& metadata = {});

// The 8-byte length and the JSON header, padded with spaces so that both together are a multiple of
// 64 bytes and the first tensor is aligned.
std::string SafetensorsHeader(const std::vector<SafetensorsTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_SAFETENSORS_H_
