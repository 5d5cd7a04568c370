// Output files that appear whole or not at all.
#ifndef SLUICE_SRC_BASE_ATOMIC_FILE_H_
#define SLUICE_SRC_BASE_ATOMIC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "sluice/error.h"
#include "src/base/temporary_file.h"

namespace sluice {

// Writes to a temporary name beside `path`; Commit renames it into place. Destroyed without Commit,
// or on any error, nothing remains and an existing file at `path` is untouched.
class AtomicFile {
 public:
  static Expected<AtomicFile> Create(const std::string& path);

  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }
  // Writes at an absolute position, e.g. a header that was reserved and is known only at the end.
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  uint64_t written() const { return written_; }

  // Flushes to the disk and renames. The file has mode 0666 less the process's umask.
  Status Commit();

 private:
  AtomicFile(std::string path, TemporaryFile file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::string path_;
  TemporaryFile file_;
  uint64_t written_ = 0;
};

// The whole of a small file.
Status WriteFileAtomically(const std::string& path, std::string_view content);

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_ATOMIC_FILE_H_
