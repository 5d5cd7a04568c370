#include "src/base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "src/base/status.h"

namespace sluice {
namespace {

Status PwriteAll(int fd, const std::string& path, uint64_t offset,
                 std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      return Fail(ErrorCode::kIo, "{}: cannot write: {}", path, std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

}  // namespace

Expected<AtomicFile> AtomicFile::Create(const std::string& path) {
  struct stat st = {};
  if (stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "{}: is a directory", path);
  }
  AtomicFile file;
  file.path_ = path;
  file.temporary_ = path + ".XXXXXX";
  file.fd_ = mkostemp(file.temporary_.data(), O_CLOEXEC);
  if (file.fd_ < 0)
    return Fail(ErrorCode::kIo, "{}: cannot create: {}", path, std::strerror(errno));
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(file.fd_, 0666 & ~mask);  // mkostemp made it 0600
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& o) noexcept
    : path_(std::move(o.path_)),
      temporary_(std::exchange(o.temporary_, {})),
      fd_(std::exchange(o.fd_, -1)),
      written_(o.written_) {}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  SLUICE_TRY(WriteAt(written_, bytes));
  written_ += bytes.size();
  return {};
}

Status AtomicFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  return PwriteAll(fd_, path_, offset, bytes);
}

Status AtomicFile::Commit() {
  if (fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) {
    return Fail(ErrorCode::kIo, "{}: cannot write: {}", path_, std::strerror(errno));
  }
  if (close(std::exchange(fd_, -1)) != 0) {
    return Fail(ErrorCode::kIo, "{}: cannot write: {}", path_, std::strerror(errno));
  }
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return Fail(ErrorCode::kIo, "{}: cannot rename into place: {}", path_, std::strerror(errno));
  }
  temporary_.clear();
  return {};
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  SLUICE_TRY(file.Write(content));
  return file.Commit();
}

}  // namespace sluice
