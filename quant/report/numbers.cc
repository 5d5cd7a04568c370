#include "quant/report/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <format>
#include <string_view>

namespace sluice {
namespace {

// The largest unit that leaves at least 1, and the value in it. `units` ascend by factors of 1000.
template <size_t N>
std::string InUnit(double value, const std::array<std::string_view, N>& units) {
  size_t unit = 0;
  // 999.5 would print as 1000 of its unit.
  while (unit + 1 < N && std::abs(value) >= 999.5) {
    value /= 1000.0;
    ++unit;
  }
  return std::format("{} {}", Significant(value), units[unit]);
}

}  // namespace

std::string Significant(double value, int digits) {
  if (std::isnan(value)) return "n/a";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (value == 0.0) return "0";
  // Rounded first, so that 9.999 counts as having two digits before the point.
  const std::string rounded = std::format("{:.{}e}", value, digits - 1);
  const int exponent = std::stoi(rounded.substr(rounded.find('e') + 1));
  if (exponent < -5 || exponent > 11) return rounded;
  return std::format("{:.{}f}", value, std::max(0, digits - 1 - exponent));
}

std::string Percent(double ratio) {
  if (!std::isfinite(ratio)) return Significant(ratio);
  return Significant(100.0 * ratio) + " %";
}

std::string Size(double bytes) {
  if (bytes < 999.5) return std::format("{:.0f} B", bytes);
  return InUnit(bytes, std::to_array<std::string_view>({"B", "kB", "MB", "GB", "TB"}));
}

std::string Grouped(uint64_t count) {
  std::string text = std::to_string(count);
  for (size_t at = text.size(); at > 3;) {
    at -= 3;
    text.insert(at, 1, ',');
  }
  return text;
}

std::string Duration(double seconds) {
  return InUnit(seconds * 1e9, std::to_array<std::string_view>({"ns", "µs", "ms", "s"}));
}

std::string Ranges(const std::vector<size_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[i]);
    if (last > i) text += std::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

std::string Plural(uint64_t count, const std::string& noun) {
  return std::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace sluice
