// How sluice reports failure: every call that can fail returns an Expected, nothing throws.
#ifndef SLUICE_ERROR_H_
#define SLUICE_ERROR_H_

#include <expected>
#include <string>

namespace sluice {

enum class ErrorCode {
  kInvalidArgument,  // the caller's request makes no sense: a wrong shape, an unknown name
  kNotFound,         // a file, tensor or layer that is not there
  kIo,               // the operating system refused to read, write or map
  kCorrupt,          // a file's content contradicts itself or its format
  kUnsupported,      // well formed, but beyond what this library or this CPU does
};

// One failure. `message` is one line for a person; it names the file, the tensor and the two
// values that disagree, as far as they are known.
struct Error {
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::string message;
};

template <class T>
using Expected = std::expected<T, Error>;

using Status = std::expected<void, Error>;

}  // namespace sluice

#endif  // SLUICE_ERROR_H_
