// A file's bytes, mapped for reading.
#ifndef SLUICE_SRC_BASE_MAPPED_FILE_H_
#define SLUICE_SRC_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "sluice/error.h"

namespace sluice {

class MappedFile {
 public:
  MappedFile() = default;
  // The error names the path and the system's reason. Directories and empty files are errors.
  static Expected<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& o) noexcept
      : path_(std::move(o.path_)),
        data_(std::exchange(o.data_, nullptr)),
        size_(std::exchange(o.size_, 0)) {}
  MappedFile& operator=(MappedFile&& o) noexcept {
    std::swap(path_, o.path_);
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Tells the kernel that `bytes` of this file will soon be read, so that it reads them ahead, in
  // huge pages where the file system has them. Does not wait.
  void WillNeed(std::span<const std::byte> bytes) const;

  // Tells the kernel that `bytes` of this file are no longer needed, so that a pass over a large
  // checkpoint does not hold all of it in memory.
  void Release(std::span<const std::byte> bytes) const;

 private:
  std::string path_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_MAPPED_FILE_H_
