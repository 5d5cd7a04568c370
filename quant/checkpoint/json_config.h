// A model's JSON configuration, read key by key.
#ifndef SLUICE_QUANT_CHECKPOINT_JSON_CONFIG_H_
#define SLUICE_QUANT_CHECKPOINT_JSON_CONFIG_H_

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "quant/checkpoint/architecture.h"
#include "quant/checkpoint/config.h"
#include "quant/checkpoint/json_file.h"
#include "sluice/error.h"

namespace sluice {

// Beyond any model; keeps products of sizes inside 64 bits.
inline constexpr uint64_t kMaxConfigSize = uint64_t{1} << 31;

// An object of a configuration, and the file it came from. Refers to both.
class JsonConfig {
 public:
  JsonConfig(const std::string& path, const Json& json) : path_(&path), json_(&json) {}

  // Null where the key is absent or null, which mean the same for most keys.
  const Json* Find(std::string_view key) const;
  // Whether it is there and null: for keys whose absence means a default, and null means none.
  bool IsNull(std::string_view key) const;

  // Errors name the file, the key and its value, which is of another type or out of range.
  Expected<std::optional<std::string>> String(std::string_view key) const;
  Expected<std::optional<ConfigSize>> Size(std::string_view key) const;  // positive
  Expected<double> Number(std::string_view key, double absent) const;
  Expected<bool> Flag(std::string_view key) const;  // false where it is absent

  // Errors if any key speaks of experts.
  Status CheckDense() const;

  // "FILE: KEY is VALUE, WHAT".
  std::unexpected<Error> Wrong(std::string_view key, const Json& value,
                               std::string_view what) const;

  const std::string& path() const { return *path_; }

 private:
  const std::string* path_;
  const Json* json_;
};

// The language model of a Hugging Face configuration: the whole of it, or a part of one with
// several towers.
struct LanguageModel {
  const Architecture* architecture = nullptr;
  JsonConfig config;
};
Expected<LanguageModel> FindLanguageModel(const JsonConfig& config);

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_JSON_CONFIG_H_
