#include "src/base/temporary_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "src/base/status.h"

namespace sluice {
namespace {

// The names that a signal handler removes: in static memory, since a handler may interrupt
// anything. A file that finds no slot, of a process that writes more than these at a time, is one
// that a signal leaves behind.
struct Slot {
  enum State { kFree, kReserved, kNamed };
  std::atomic<State> state = kFree;
  char name[PATH_MAX] = {};
};
static_assert(std::atomic<Slot::State>::is_always_lock_free);
std::array<Slot, 16> slots;

int Register(const std::string& name) {
  if (name.size() >= PATH_MAX) return -1;
  for (size_t i = 0; i < slots.size(); ++i) {
    Slot::State expected = Slot::kFree;
    if (!slots[i].state.compare_exchange_strong(expected, Slot::kReserved)) continue;
    std::memcpy(slots[i].name, name.c_str(), name.size() + 1);
    slots[i].state = Slot::kNamed;
    return static_cast<int>(i);
  }
  return -1;
}

void Unregister(int slot) {
  if (slot >= 0) slots[static_cast<size_t>(slot)].state = Slot::kFree;
}

}  // namespace

Expected<TemporaryFile> TemporaryFile::Beside(const std::string& path) {
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "an output's name is empty");
  struct stat st = {};
  if (stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "{}: is {}", path,
                S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
  }
  TemporaryFile file;
  file.path_ = path;
  file.name_ = path + ".XXXXXX";
  file.fd_ = mkostemp(file.name_.data(), O_CLOEXEC);
  if (file.fd_ < 0) {
    file.name_.clear();
    return Fail(ErrorCode::kIo, "{}: cannot create: {}", path, std::strerror(errno));
  }
  file.slot_ = Register(file.name_);
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(file.fd_, 0666 & ~mask);  // mkostemp made it 0600
  return file;
}

TemporaryFile::TemporaryFile(TemporaryFile&& o) noexcept
    : path_(std::move(o.path_)),
      name_(std::exchange(o.name_, {})),
      fd_(std::exchange(o.fd_, -1)),
      slot_(std::exchange(o.slot_, -1)) {}

TemporaryFile::~TemporaryFile() {
  if (fd_ >= 0) close(fd_);
  if (!name_.empty()) unlink(name_.c_str());
  Unregister(slot_);
}

Status TemporaryFile::Rename() {
  if (close(std::exchange(fd_, -1)) != 0) {
    return Fail(ErrorCode::kIo, "{}: cannot write: {}", path_, std::strerror(errno));
  }
  if (rename(name_.c_str(), path_.c_str()) != 0) {
    return Fail(ErrorCode::kIo, "{}: cannot rename into place: {}", path_, std::strerror(errno));
  }
  name_.clear();
  Unregister(std::exchange(slot_, -1));
  return {};
}

void RemoveTemporaryFiles() {
  for (const Slot& slot : slots) {
    if (slot.state == Slot::kNamed) unlink(slot.name);
  }
}

}  // namespace sluice
