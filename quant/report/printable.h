// Text from files and command lines, made safe to show.
#ifndef SLUICE_QUANT_REPORT_PRINTABLE_H_
#define SLUICE_QUANT_REPORT_PRINTABLE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice {

// The text with control characters and bytes that are not UTF-8 written as \xNN: on one line,
// unable to command the terminal, and valid in JSON and HTML. Tensor names come from files that
// anybody may have made.
std::string Printable(std::string_view text);

// Columns that valid UTF-8 takes on a terminal, every character counted as one.
size_t DisplayWidth(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_PRINTABLE_H_
