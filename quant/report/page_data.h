// What the sections of the report's page and of its Markdown are made of.
#ifndef SLUICE_QUANT_REPORT_PAGE_DATA_H_
#define SLUICE_QUANT_REPORT_PAGE_DATA_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <format>
#include <kainjow/mustache.hpp>
#include <string>

namespace sluice {

using PageData = kainjow::mustache::data;

inline PageData PageList() { return PageData(PageData::type::list); }

// A value that a section can ask for: empty text is absent.
inline void SetIfAny(PageData& to, const std::string& key, const std::string& text) {
  to.set(key, text.empty() ? PageData(false) : PageData(text));
}

// The larger of two figures, leaving aside what is not finite.
inline double FiniteMax(double a, double b) { return std::isfinite(b) ? std::max(a, b) : a; }

// As percent of `of`, for lengths in style sheets: from 0 to 100, "12.34".
inline std::string Share(double value, double of) {
  return std::format("{:.2f}", of > 0 ? std::clamp(100 * value / of, 0.0, 100.0) : 0.0);
}

// The class of a file's or a series' colour and line.
inline std::string ColorClass(size_t index) { return std::format("c{}", index % 6); }

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_PAGE_DATA_H_
