// What all of the command's JSON documents share.
#ifndef SLUICE_QUANT_REPORT_JSON_TEXT_H_
#define SLUICE_QUANT_REPORT_JSON_TEXT_H_

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice {

// Keys stay in the order they are set.
using Json = nlohmann::ordered_json;

// JSON has no infinities and no NaN: null.
inline Json NumberOrNull(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

// Indented text with a final line feed. Bytes that are not UTF-8 (a path may have any) become
// U+FFFD.
inline std::string JsonText(const Json& json) {
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_JSON_TEXT_H_
