#include "src/file/safetensors_header.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

constexpr std::string_view kMetadataName = "__metadata__";

// Takes the parser's events rather than its tree: a tree would drop the first of two equal keys,
// and cost many times the header's size. The parser keeps no call stack, so hostile nesting only
// counts `skipping_` up.
class HeaderReader {
 public:
  // What nlohmann's parser calls; the names are its own, and returning false stops it.
  using Json = nlohmann::json;
  bool null() { return Other("null"); }
  bool boolean(bool value) { return Other(value ? "true" : "false"); }
  bool binary(Json::binary_t&) { return Other("binary data"); }
  bool number_float(Json::number_float_t, const std::string& text) { return Other(text); }
  bool number_integer(Json::number_integer_t value) { return Other(std::to_string(value)); }
  bool number_unsigned(Json::number_unsigned_t value);
  bool string(std::string& value);
  bool key(std::string& name);
  bool start_object(size_t);
  bool end_object();
  bool start_array(size_t);
  bool end_array();
  bool parse_error(size_t position, const std::string&, const Json::exception&) {
    return Stop("the header is not JSON: error at byte {} of it", position);
  }

  Expected<SafetensorsHeaderContent> Take() && {
    if (error_) return std::unexpected(*std::move(error_));
    return std::move(content_);
  }

 private:
  // Where the next value or key belongs.
  enum class State { kDocument, kTop, kMetadata, kTensor, kShape, kOffsets };
  enum class Field { kDtype, kShape, kOffsets };

  template <class... Args>
  bool Stop(std::format_string<Args...> format, Args&&... args) {
    error_ = Fail(ErrorCode::kCorrupt, format, std::forward<Args>(args)...).error();
    return false;
  }
  // True inside a field of a tensor that the format does not define.
  bool skips() const { return skipping_ > 0 || (state_ == State::kTensor && !field_); }
  // A value that fits nowhere, unless it is skipped.
  bool Other(std::string_view found) { return skips() || Unexpected(found); }
  bool Unexpected(std::string_view found);
  bool TensorKey(const std::string& name);
  bool EndTensor();

  SafetensorsHeaderContent content_;
  std::optional<Error> error_;
  State state_ = State::kDocument;
  std::string name_;               // the latest key of the top object or of the metadata
  std::set<std::string> names_;    // all keys of the top object
  SafetensorsHeaderEntry entry_;   // the current tensor
  std::optional<Field> field_;     // its current key; none: one to skip
  std::set<Field> fields_;         // those it has had
  std::vector<uint64_t> offsets_;  // its data_offsets
  size_t skipping_ = 0;            // containers open inside a field to skip
};

bool HeaderReader::Unexpected(std::string_view found) {
  switch (state_) {
    case State::kDocument:
      return Stop("the header is {}, expected an object", found);
    case State::kTop:
      return Stop("tensor {} is {}, expected an object", Quote(name_), found);
    case State::kMetadata:
      return Stop("metadata {} is {}, expected a string", Quote(name_), found);
    case State::kTensor:
      return Stop("tensor {}: {}", Quote(name_),
                  field_ == Field::kDtype
                      ? std::format("dtype is {}, expected a string", found)
                      : std::format("{} is {}, expected an array",
                                    field_ == Field::kShape ? "shape" : "data_offsets", found));
    case State::kShape:
    case State::kOffsets:
      return Stop("tensor {}: {} holds {}, expected an integer from 0 to 2^64-1", Quote(name_),
                  state_ == State::kShape ? "shape" : "data_offsets", found);
  }
  return false;
}

bool HeaderReader::number_unsigned(Json::number_unsigned_t value) {
  if (skips()) return true;
  if (state_ == State::kShape) {
    entry_.tensor.shape.push_back(value);
  } else if (state_ == State::kOffsets) {
    offsets_.push_back(value);
  } else {
    return Unexpected(std::to_string(value));
  }
  return true;
}

bool HeaderReader::string(std::string& value) {
  if (skips()) return true;
  if (state_ == State::kMetadata) {
    content_.metadata.emplace(name_, std::move(value));
  } else if (state_ == State::kTensor && field_ == Field::kDtype) {
    entry_.tensor.dtype = std::move(value);
  } else {
    return Unexpected("a string");
  }
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (skipping_ > 0) return true;
  if (state_ == State::kTensor) return TensorKey(name);
  name_ = std::move(name);
  if (state_ == State::kMetadata) {
    return !content_.metadata.contains(name_) || Stop("metadata {} comes twice", Quote(name_));
  }
  return names_.insert(name_).second || Stop("tensor {} comes twice", Quote(name_));
}

bool HeaderReader::TensorKey(const std::string& name) {
  field_.reset();
  if (name == "dtype") field_ = Field::kDtype;
  if (name == "shape") field_ = Field::kShape;
  if (name == "data_offsets") field_ = Field::kOffsets;
  return !field_ || fields_.insert(*field_).second ||
         Stop("tensor {}: {} comes twice", Quote(name_), name);
}

bool HeaderReader::start_object(size_t) {
  if (skips()) {
    ++skipping_;
  } else if (state_ == State::kDocument) {
    state_ = State::kTop;
  } else if (state_ == State::kTop) {
    const bool metadata = name_ == kMetadataName;
    state_ = metadata ? State::kMetadata : State::kTensor;
    entry_ = {};
    offsets_.clear();
    fields_.clear();
    field_.reset();
  } else {
    return Unexpected("an object");
  }
  return true;
}

bool HeaderReader::end_object() {
  if (skipping_ > 0) {
    --skipping_;
  } else if (state_ == State::kMetadata) {
    state_ = State::kTop;
  } else if (state_ == State::kTensor) {
    return EndTensor();
  } else {
    state_ = State::kDocument;
  }
  return true;
}

bool HeaderReader::EndTensor() {
  const std::pair<Field, std::string_view> required[] = {
      {Field::kDtype, "dtype"}, {Field::kShape, "shape"}, {Field::kOffsets, "data_offsets"}};
  for (const auto& [field, text] : required) {
    if (!fields_.contains(field)) return Stop("tensor {} has no {}", Quote(name_), text);
  }
  if (offsets_.size() != 2) {
    return Stop("tensor {}: data_offsets has {} values, expected 2", Quote(name_), offsets_.size());
  }
  entry_.tensor.name = name_;
  entry_.begin = offsets_[0];
  entry_.end = offsets_[1];
  content_.entries.push_back(std::move(entry_));
  state_ = State::kTop;
  return true;
}

bool HeaderReader::start_array(size_t) {
  if (skips()) {
    ++skipping_;
  } else if (state_ == State::kTensor && field_ == Field::kShape) {
    state_ = State::kShape;
  } else if (state_ == State::kTensor && field_ == Field::kOffsets) {
    state_ = State::kOffsets;
  } else {
    return Unexpected("an array");
  }
  return true;
}

bool HeaderReader::end_array() {
  if (skipping_ > 0) {
    --skipping_;
  } else {
    state_ = State::kTensor;
  }
  return true;
}

}  // namespace

Expected<SafetensorsHeaderContent> ParseSafetensorsHeader(std::string_view json) {
  // The parser would skip a byte-order mark, and take a NUL byte for the end.
  if (!json.starts_with('{')) {
    return Fail(ErrorCode::kCorrupt, "the header does not start with \"{{\"");
  }
  if (const size_t nul = json.find('\0'); nul != json.npos) {
    return Fail(ErrorCode::kCorrupt, "the header is not JSON: NUL at byte {} of it", nul);
  }
  HeaderReader reader;
  nlohmann::json::sax_parse(json, &reader);
  return std::move(reader).Take();
}

}  // namespace sluice
