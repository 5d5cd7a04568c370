// Numbers as people read them.
#ifndef SLUICE_QUANT_REPORT_NUMBERS_H_
#define SLUICE_QUANT_REPORT_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

// `digits` significant digits without an exponent where that is readable: "4.50", "0.00123",
// "12300"; "3.1e-07" where it is not. What is not finite is "inf", "-inf" or "n/a".
std::string Significant(double value, int digits = 3);

// A ratio as a percentage of three significant digits: 0.0983 is "9.83 %".
std::string Percent(double ratio);

// Decimal units, three significant digits: "947 B", "1.49 MB", "31.2 GB".
std::string Size(double bytes);

// Large counts in groups of three: "79,626,240".
std::string Grouped(uint64_t count);

// Seconds in the unit that suits: "85.1 µs", "1.28 ms".
std::string Duration(double seconds);

// Ascending numbers as ranges: {0, 1, 2, 5} is "0-2, 5".
std::string Ranges(const std::vector<size_t>& numbers);

// "1 token", "3 tokens".
std::string Plural(uint64_t count, const std::string& noun);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_NUMBERS_H_
