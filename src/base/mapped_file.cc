#include "src/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "src/base/status.h"

namespace sluice {

Expected<MappedFile> MappedFile::Open(const std::string& path) {
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "a file's name is empty");
  // O_NONBLOCK: a pipe that nobody writes to is refused below, not waited for.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Fail(code, "{}: cannot open: {}", path, std::strerror(errno));
  }
  struct stat st = {};
  const int stat_result = fstat(fd, &st);
  const int stat_errno = errno;
  const auto close_and_fail = [&](ErrorCode code, const std::string& why) {
    close(fd);
    return Fail(code, "{}: {}", path, why);
  };
  if (stat_result != 0) return close_and_fail(ErrorCode::kIo, std::strerror(stat_errno));
  if (S_ISDIR(st.st_mode)) return close_and_fail(ErrorCode::kInvalidArgument, "is a directory");
  if (!S_ISREG(st.st_mode))
    return close_and_fail(ErrorCode::kInvalidArgument, "not a regular file");
  if (st.st_size == 0) return close_and_fail(ErrorCode::kCorrupt, "the file is empty");
  if (!std::in_range<size_t>(st.st_size)) {
    return close_and_fail(ErrorCode::kUnsupported, "too large for this machine's address space");
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(st.st_size);
  void* p = mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
  const int map_errno = errno;
  close(fd);
  if (p == MAP_FAILED)
    return Fail(ErrorCode::kIo, "{}: cannot map: {}", path, std::strerror(map_errno));
  file.data_ = static_cast<std::byte*>(p);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_);
}

void MappedFile::WillNeed(std::span<const std::byte> bytes) const {
  if (bytes.empty()) return;
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  for (const int advice : {MADV_HUGEPAGE, MADV_WILLNEED}) {  // failure costs speed only
    madvise(reinterpret_cast<void*>(begin), end - begin, advice);
  }
}

void MappedFile::Release(std::span<const std::byte> bytes) const {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace sluice
