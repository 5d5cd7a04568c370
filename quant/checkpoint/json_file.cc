#include "quant/checkpoint/json_file.h"

#include "src/base/mapped_file.h"
#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {

Expected<Json> ParseJsonObject(const std::string& path, std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    if (error.byte > text.size()) {
      return Fail(ErrorCode::kCorrupt, "{}: not JSON: it ends unfinished after {} bytes", path,
                  text.size());
    }
    return Fail(ErrorCode::kCorrupt, "{}: not JSON: error at byte {} of {}", path, error.byte,
                text.size());
  } catch (const Json::exception&) {
    return Fail(ErrorCode::kCorrupt, "{}: JSON with a number that no format holds", path);
  }
  if (!json.is_object()) {
    return Fail(ErrorCode::kCorrupt, "{}: the JSON is {}, not an object", path, json.type_name());
  }
  return json;
}

Expected<Json> ReadJsonFile(const std::string& path) {
  SLUICE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() > kMaxJsonFile) {
    return Fail(ErrorCode::kUnsupported, "{}: {} bytes of JSON, at most {} are read", path,
                bytes.size(), kMaxJsonFile);
  }
  return ParseJsonObject(
      path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string JsonText(const Json& value) {
  if (value.is_string()) return Quote(value.get_ref<const std::string&>());
  // Not dumped: that recurses, and a file can nest deeper than the stack.
  if (value.is_structured()) return std::string("an ") + value.type_name();
  return value.dump();
}

}  // namespace sluice
