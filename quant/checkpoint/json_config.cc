#include "quant/checkpoint/json_config.h"

#include <array>

#include "src/base/status.h"

namespace sluice {
namespace {

// Keys whose presence, with a number above 0 or an object, means experts.
constexpr std::array<std::string_view, 5> kExpertKeys = {
    "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "moe"};

}  // namespace

const Json* JsonConfig::Find(std::string_view key) const {
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonConfig::IsNull(std::string_view key) const {
  const auto found = json_->find(key);
  return found != json_->end() && found->is_null();
}

Expected<std::optional<std::string>> JsonConfig::String(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Wrong(key, *value, "not a string");
  return value->get<std::string>();
}

Expected<std::optional<ConfigSize>> JsonConfig::Size(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || value->get<uint64_t>() == 0) {
    return Wrong(key, *value, "not a positive integer");
  }
  if (value->get<uint64_t>() > kMaxConfigSize) {
    return Wrong(key, *value, "larger than any model's");
  }
  return ConfigSize{value->get<uint64_t>(), std::string(key)};
}

Expected<double> JsonConfig::Number(std::string_view key, double absent) const {
  const Json* value = Find(key);
  if (value == nullptr) return absent;
  if (!value->is_number()) return Wrong(key, *value, "not a number");
  return value->get<double>();
}

Expected<bool> JsonConfig::Flag(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return Wrong(key, *value, "neither true nor false");
  return value->get<bool>();
}

Status JsonConfig::CheckDense() const {
  for (const std::string_view key : kExpertKeys) {
    const Json* value = Find(key);
    if (value == nullptr) continue;
    const bool experts =
        value->is_number() ? value->get<double>() > 0 : value->is_structured() && !value->empty();
    if (experts) {
      return Fail(ErrorCode::kUnsupported, "{}: mixture of experts is not supported ({} is {})",
                  path(), key, JsonText(*value));
    }
  }
  return {};
}

std::unexpected<Error> JsonConfig::Wrong(std::string_view key, const Json& value,
                                         std::string_view what) const {
  return Fail(ErrorCode::kCorrupt, "{}: {} is {}, {}", path(), key, JsonText(value), what);
}

}  // namespace sluice
