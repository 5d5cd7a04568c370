// Typed access to a JSON object that nobody vouches for.
#ifndef SLUICE_SRC_FILE_JSON_FIELDS_H_
#define SLUICE_SRC_FILE_JSON_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "sluice/error.h"

namespace sluice {

// A value as an error message shows it: itself if it is short, else its type.
std::string JsonShown(const nlohmann::json& value);

// One object and where it stands, so that an error can say so: `layers[3].matrices.gate: "shape" is
// 5, expected an array`. Keys that nobody asks for are ignored. The object must outlive this.
class JsonFields {
 public:
  static Expected<JsonFields> Create(const nlohmann::json& value, std::string where);

  bool Has(std::string_view key) const { return object_->contains(key); }
  Expected<uint64_t> Integer(std::string_view key) const;  // from 0 on
  Expected<size_t> Size(std::string_view key) const;       // the same, no more than memory has
  Expected<std::string> Text(std::string_view key) const;
  Expected<bool> Flag(std::string_view key) const;
  Expected<const nlohmann::json*> Array(std::string_view key) const;
  Expected<JsonFields> Object(std::string_view key) const;

  const std::string& where() const { return where_; }
  const nlohmann::json& object() const { return *object_; }

 private:
  JsonFields(const nlohmann::json& object, std::string where)
      : object_(&object), where_(std::move(where)) {}
  Expected<const nlohmann::json*> Get(std::string_view key) const;
  std::unexpected<Error> Wrong(std::string_view key, const nlohmann::json& value,
                               std::string_view expected) const;

  const nlohmann::json* object_;
  std::string where_;
};

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_JSON_FIELDS_H_
