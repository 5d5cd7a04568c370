// JSON files that come with checkpoints: configurations and indices.
#ifndef SLUICE_QUANT_CHECKPOINT_JSON_FILE_H_
#define SLUICE_QUANT_CHECKPOINT_JSON_FILE_H_

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sluice/error.h"

namespace sluice {

using Json = nlohmann::json;

// Far beyond any model's, so that a wrong file is noticed before it is read into memory.
inline constexpr size_t kMaxJsonFile = 64 << 20;

// An object; anything else is an error that names `path` and the place where it stops being JSON.
Expected<Json> ParseJsonObject(const std::string& path, std::string_view text);
Expected<Json> ReadJsonFile(const std::string& path);

// A value for an error message: JSON again, whatever it holds.
std::string JsonText(const Json& value);

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_JSON_FILE_H_
