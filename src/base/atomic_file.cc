#include "src/base/atomic_file.h"

#include <unistd.h>

#include <cerrno>
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
  SLUICE_ASSIGN(TemporaryFile file, TemporaryFile::Beside(path));
  return AtomicFile(path, std::move(file));
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  SLUICE_TRY(WriteAt(written_, bytes));
  written_ += bytes.size();
  return {};
}

Status AtomicFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  return PwriteAll(file_.fd(), path_, offset, bytes);
}

Status AtomicFile::Commit() {
  if (fsync(file_.fd()) != 0 && errno != EINVAL && errno != EROFS) {
    return Fail(ErrorCode::kIo, "{}: cannot write: {}", path_, std::strerror(errno));
  }
  return file_.Rename();
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  SLUICE_TRY(file.Write(content));
  return file.Commit();
}

}  // namespace sluice
