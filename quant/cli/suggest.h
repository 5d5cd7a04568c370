// What somebody who mistyped a name may have meant.
#ifndef SLUICE_QUANT_CLI_SUGGEST_H_
#define SLUICE_QUANT_CLI_SUGGEST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// How many characters must be added, removed or replaced to make b of a.
size_t EditDistance(std::string_view a, std::string_view b);

// The name of `known` that is nearest to `name`, the first of several; empty if none is within 2.
std::string Nearest(std::string_view name, const std::vector<std::string>& known);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_SUGGEST_H_
