// Making and passing on errors.
#ifndef SLUICE_SRC_BASE_STATUS_H_
#define SLUICE_SRC_BASE_STATUS_H_

#include <format>
#include <string_view>
#include <utility>

#include "sluice/error.h"

namespace sluice {

// An error with a formatted one-line message: `return Fail(ErrorCode::kIo, "{}: …", path);`
template <class... Args>
[[nodiscard]] std::unexpected<Error> Fail(ErrorCode code, std::format_string<Args...> format,
                                          Args&&... args) {
  return std::unexpected(Error{code, std::format(format, std::forward<Args>(args)...)});
}

// The same error, said of `subject`: a file, or a tensor in it.
[[nodiscard]] inline std::unexpected<Error> FailIn(std::string_view subject, const Error& error) {
  return Fail(error.code, "{}: {}", subject, error.message);
}

}  // namespace sluice

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)

// Returns the error of `expr`, an Expected or a Status, from the calling function.
#define SLUICE_TRY(expr)                                        \
  do {                                                          \
    if (auto sluice_status = (expr); !sluice_status)            \
      return std::unexpected(std::move(sluice_status).error()); \
  } while (false)

// Assigns the value of `expr` to `lhs`, or returns its error from the calling function.
#define SLUICE_ASSIGN(lhs, expr) \
  SLUICE_ASSIGN_INNER(SLUICE_CONCAT(sluice_expected_, __LINE__), lhs, expr)
#define SLUICE_ASSIGN_INNER(tmp, lhs, expr)                 \
  auto tmp = (expr);                                        \
  if (!tmp) return std::unexpected(std::move(tmp).error()); \
  lhs = *std::move(tmp)

#endif  // SLUICE_SRC_BASE_STATUS_H_
