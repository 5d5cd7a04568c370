#include "src/file/json_fields.h"

#include <cstdint>
#include <utility>

#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {

using Json = nlohmann::json;

std::string JsonShown(const Json& value) {
  if (value.is_string()) return Quote(value.get_ref<const std::string&>());
  if (value.is_structured()) return std::format("an {}", value.type_name());
  return value.dump();
}

Expected<JsonFields> JsonFields::Create(const Json& value, std::string where) {
  if (!value.is_object()) {
    return Fail(ErrorCode::kCorrupt, "{} is {}, expected an object", where, JsonShown(value));
  }
  return JsonFields(value, std::move(where));
}

Expected<const Json*> JsonFields::Get(std::string_view key) const {
  const auto found = object_->find(key);
  if (found == object_->end()) {
    return Fail(ErrorCode::kCorrupt, "{} has no \"{}\"", where_, key);
  }
  return &*found;
}

std::unexpected<Error> JsonFields::Wrong(std::string_view key, const Json& value,
                                         std::string_view expected) const {
  return Fail(ErrorCode::kCorrupt, "{}: \"{}\" is {}, expected {}", where_, key, JsonShown(value),
              expected);
}

Expected<uint64_t> JsonFields::Integer(std::string_view key) const {
  SLUICE_ASSIGN(const Json* value, Get(key));
  if (!value->is_number_unsigned()) return Wrong(key, *value, "an integer from 0 on");
  return value->get<uint64_t>();
}

Expected<size_t> JsonFields::Size(std::string_view key) const {
  SLUICE_ASSIGN(const uint64_t value, Integer(key));
  if (!std::in_range<size_t>(value)) {
    return Wrong(key, Json(value), "an integer from 0 to what this machine can address");
  }
  return static_cast<size_t>(value);
}

Expected<std::string> JsonFields::Text(std::string_view key) const {
  SLUICE_ASSIGN(const Json* value, Get(key));
  if (!value->is_string()) return Wrong(key, *value, "a string");
  return value->get_ref<const std::string&>();
}

Expected<bool> JsonFields::Flag(std::string_view key) const {
  SLUICE_ASSIGN(const Json* value, Get(key));
  if (!value->is_boolean()) return Wrong(key, *value, "true or false");
  return value->get<bool>();
}

Expected<const Json*> JsonFields::Array(std::string_view key) const {
  SLUICE_ASSIGN(const Json* value, Get(key));
  if (!value->is_array()) return Wrong(key, *value, "an array");
  return value;
}

Expected<JsonFields> JsonFields::Object(std::string_view key) const {
  SLUICE_ASSIGN(const Json* value, Get(key));
  return Create(*value, std::format("{}.{}", where_, key));
}

}  // namespace sluice
