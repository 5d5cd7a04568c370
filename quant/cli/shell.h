// Command lines as text.
#ifndef SLUICE_QUANT_CLI_SHELL_H_
#define SLUICE_QUANT_CLI_SHELL_H_

#include <string>
#include <string_view>

namespace sluice {

// `word` as a POSIX shell has to be given it: as it is, or in single quotes.
std::string ShellQuote(std::string_view word);

// "sluice" and the arguments, ready to be pasted.
std::string ShellCommand(int argc, const char* const* argv);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_SHELL_H_
