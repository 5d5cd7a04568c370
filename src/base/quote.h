// Names from files, made fit for an error message.
#ifndef SLUICE_SRC_BASE_QUOTE_H_
#define SLUICE_SRC_BASE_QUOTE_H_

#include <string>
#include <string_view>

namespace sluice {

// `text` in double quotes, on one line whatever a file put into it: control characters, quotes and
// backslashes are escaped, and a long text is cut in the middle.
std::string Quote(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_QUOTE_H_
