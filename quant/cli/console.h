// What the command says while it works: on stderr, so that stdout holds results only.
#ifndef SLUICE_QUANT_CLI_CONSOLE_H_
#define SLUICE_QUANT_CLI_CONSOLE_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice {

// "sluice: MESSAGE", one line whatever the message holds.
void PrintError(std::string_view message);
// "sluice: warning: MESSAGE".
void PrintWarning(std::string_view message);
// "sluice: MESSAGE".
void PrintNote(std::string_view message);

// Writes results to stdout. Nothing is lost silently: see FlushOutput.
void Print(std::string_view text);
// Errors if something printed did not reach stdout (a full disk, a closed pipe).
Status FlushOutput();

// How far a loop has come, and how long the rest will take if its steps are alike: a bar that is
// redrawn in place on a terminal, plain lines elsewhere.
class Progress {
 public:
  // `doing` as in "quantizing".
  Progress(std::string doing, bool quiet);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // removes the bar

  // `done` of `all` steps are done, the last of which was `what`.
  void Show(size_t done, size_t all, const std::string& what);

 private:
  std::string doing_;
  bool quiet_;
  bool terminal_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_line_;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_CONSOLE_H_
