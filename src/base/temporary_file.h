// Files on their way to being complete.
#ifndef SLUICE_SRC_BASE_TEMPORARY_FILE_H_
#define SLUICE_SRC_BASE_TEMPORARY_FILE_H_

#include <string>

#include "sluice/error.h"

namespace sluice {

// An empty file of a unique name beside `path`, so that a rename can put it there. Removed when
// destroyed, unless it was renamed.
class TemporaryFile {
 public:
  // The file has mode 0666 less the process's umask. Errors name `path`: a directory that is not
  // there or not writable; something at `path` that is no regular file and so must not be replaced.
  static Expected<TemporaryFile> Beside(const std::string& path);
  TemporaryFile(TemporaryFile&& o) noexcept;
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile();

  int fd() const { return fd_; }  // open for writing, until Rename
  const std::string& name() const { return name_; }

  // Closes the file and puts it at `path`, replacing what is there.
  Status Rename();

 private:
  TemporaryFile() = default;
  std::string path_;
  std::string name_;
  int fd_ = -1;
  int slot_ = -1;
};

// Removes all temporary files of this process. For a handler of a signal that ends it: calls only
// functions that are safe there.
void RemoveTemporaryFiles();

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_TEMPORARY_FILE_H_
