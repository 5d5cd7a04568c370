#include "quant/cli/shell.h"

namespace sluice {

std::string ShellQuote(std::string_view word) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(word);
  }
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ShellCommand(int argc, const char* const* argv) {
  std::string command = "sluice";
  for (int i = 1; i < argc; ++i) command += " " + ShellQuote(argv[i]);
  return command;
}

}  // namespace sluice
