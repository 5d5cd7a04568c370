#include "src/file/model_description.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/file/checksum.h"
#include "src/file/json_fields.h"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr char kFormatKey[] = "format";
constexpr char kFormatValue[] = "sluice";
constexpr char kDescriptionKey[] = "sluice";
constexpr char kChecksumKey[] = "sluice_checksum";

// Parsing takes some twenty times the text's size in memory; a real description has about 1 kB a
// layer.
constexpr size_t kMaxDescription = 32 << 20;

std::string DescriptionChecksum(std::string_view text) {
  return ChecksumText(Checksum(std::as_bytes(std::span(text))));
}

// --- Writing -------------------------------------------------------------------------------------

nlohmann::ordered_json MatrixJson(const MatrixInfo& matrix, const PerPlane<uint64_t>& checksums) {
  nlohmann::ordered_json json;
  json["name"] = matrix.name;
  if (!matrix.bias_name.empty()) json["bias_name"] = matrix.bias_name;
  json["format"] = Name(matrix.format);
  json["requested"] = Name(matrix.requested);
  if (!matrix.method.empty()) {
    json["method"] = matrix.method;
    json["requested_method"] = matrix.requested_method;
  }
  json["shape"] = {matrix.rows, matrix.cols};
  for (const Plane plane : kPlanes) {
    if (!HasPlane(matrix.format, !matrix.bias_name.empty(), plane)) continue;
    json["checksums"][std::string(Name(plane))] = ChecksumText(checksums[plane]);
  }
  return json;
}

nlohmann::ordered_json LayerJson(const LayerInfo& layer,
                                 const PerMatrix<PerPlane<uint64_t>>& checksums,
                                 uint64_t rescale_checksum) {
  nlohmann::ordered_json json;
  json["layer"] = layer.layer;
  json["d_model"] = layer.d_model;
  json["d_ff"] = layer.d_ff;
  json["activation"] = Name(layer.activation);
  json["gated"] = layer.gated;
  json["activations"]["input"] = Name(layer.input_activations);
  json["activations"]["hidden"] = Name(layer.hidden_activations);
  for (const Matrix m : kMatrices) {
    if (!layer.matrices[m]) continue;
    json["matrices"][std::string(Name(m))] = MatrixJson(*layer.matrices[m], checksums[m]);
  }
  if (layer.rescaled) json["rescale"]["checksum"] = ChecksumText(rescale_checksum);
  return json;
}

// --- Reading -------------------------------------------------------------------------------------

// Reads a name that a later version of this library may know and this one does not.
template <class Parse>
auto ReadName(const JsonFields& fields, std::string_view key, Parse parse)
    -> decltype(parse(std::string_view())) {
  SLUICE_ASSIGN(const std::string text, fields.Text(key));
  auto value = parse(text);
  if (!value) {
    return Fail(ErrorCode::kUnsupported, "{}: \"{}\": {}", fields.where(), key,
                value.error().message);
  }
  return value;
}

Status ReadShape(const JsonFields& fields, MatrixInfo& matrix) {
  SLUICE_ASSIGN(const Json* shape, fields.Array("shape"));
  const auto is_size = [](const Json& n) {
    return n.is_number_unsigned() && std::in_range<size_t>(n.get<uint64_t>());
  };
  if (shape->size() != 2 || !is_size((*shape)[0]) || !is_size((*shape)[1])) {
    return Fail(ErrorCode::kCorrupt, "{}: \"shape\" is not an array of two integers from 0 on",
                fields.where());
  }
  matrix.rows = static_cast<size_t>((*shape)[0].get<uint64_t>());
  matrix.cols = static_cast<size_t>((*shape)[1].get<uint64_t>());
  return {};
}

Expected<uint64_t> ReadChecksum(const JsonFields& fields, std::string_view key) {
  SLUICE_ASSIGN(const std::string text, fields.Text(key));
  const std::optional<uint64_t> checksum = ParseChecksum(text);
  if (checksum) return *checksum;
  return Fail(ErrorCode::kCorrupt, "{}: \"{}\" is {}, expected 16 hexadecimal digits",
              fields.where(), key, Quote(text));
}

Status ReadChecksums(const JsonFields& fields, const MatrixInfo& matrix,
                     PerPlane<uint64_t>& checksums) {
  SLUICE_ASSIGN(const JsonFields texts, fields.Object("checksums"));
  for (const Plane plane : kPlanes) {
    if (!HasPlane(matrix.format, !matrix.bias_name.empty(), plane)) continue;
    SLUICE_ASSIGN(checksums[plane], ReadChecksum(texts, Name(plane)));
  }
  return {};
}

Expected<MatrixInfo> ReadMatrix(const JsonFields& fields, PerPlane<uint64_t>& checksums) {
  MatrixInfo matrix;
  SLUICE_ASSIGN(matrix.name, fields.Text("name"));
  if (fields.Has("bias_name")) {
    SLUICE_ASSIGN(matrix.bias_name, fields.Text("bias_name"));
    if (matrix.bias_name.empty()) {
      return Fail(ErrorCode::kCorrupt, "{}: \"bias_name\" is empty", fields.where());
    }
  }
  SLUICE_ASSIGN(matrix.format, ReadName(fields, "format", ParseWeightFormat));
  SLUICE_ASSIGN(matrix.requested, ReadName(fields, "requested", ParseWeightFormat));
  if (fields.Has("method")) {
    SLUICE_ASSIGN(matrix.method, fields.Text("method"));
    SLUICE_ASSIGN(matrix.requested_method, fields.Text("requested_method"));
  }
  SLUICE_TRY(ReadShape(fields, matrix));
  SLUICE_TRY(ReadChecksums(fields, matrix, checksums));
  return matrix;
}

Expected<LayerInfo> ReadLayer(const JsonFields& fields, PerMatrix<PerPlane<uint64_t>>& checksums,
                              uint64_t& rescale_checksum) {
  LayerInfo layer;
  SLUICE_ASSIGN(layer.layer, fields.Size("layer"));
  SLUICE_ASSIGN(layer.d_model, fields.Size("d_model"));
  SLUICE_ASSIGN(layer.d_ff, fields.Size("d_ff"));
  SLUICE_ASSIGN(layer.activation, ReadName(fields, "activation", ParseActivation));
  SLUICE_ASSIGN(layer.gated, fields.Flag("gated"));
  SLUICE_ASSIGN(const JsonFields activations, fields.Object("activations"));
  SLUICE_ASSIGN(layer.input_activations, ReadName(activations, "input", ParseActivationFormat));
  SLUICE_ASSIGN(layer.hidden_activations, ReadName(activations, "hidden", ParseActivationFormat));
  SLUICE_ASSIGN(const JsonFields matrices, fields.Object("matrices"));
  for (const auto& [name, value] : matrices.object().items()) {
    const Expected<Matrix> parsed = ParseMatrix(name);
    if (!parsed) {
      return Fail(ErrorCode::kUnsupported, "{}: {}", matrices.where(), parsed.error().message);
    }
    const Matrix m = *parsed;
    SLUICE_ASSIGN(const JsonFields matrix,
                  JsonFields::Create(value, std::format("{}.{}", matrices.where(), Name(m))));
    SLUICE_ASSIGN(layer.matrices[m], ReadMatrix(matrix, checksums[m]));
  }
  layer.rescaled = fields.Has("rescale");
  if (layer.rescaled) {
    SLUICE_ASSIGN(const JsonFields rescale, fields.Object("rescale"));
    SLUICE_ASSIGN(rescale_checksum, ReadChecksum(rescale, "checksum"));
  }
  return layer;
}

Expected<ModelDescription> ReadDescription(const Json& json) {
  SLUICE_ASSIGN(const JsonFields fields, JsonFields::Create(json, "the description"));
  SLUICE_ASSIGN(const std::string layout, fields.Text("layout"));
  SLUICE_ASSIGN(const uint64_t version, fields.Integer("layout_version"));
  if (layout != kLayoutName || version != kLayoutVersion) {
    return Fail(ErrorCode::kUnsupported,
                "the layout is {} version {}, this library reads \"{}\" version {}", Quote(layout),
                version, kLayoutName, kLayoutVersion);
  }
  ModelDescription description;
  SLUICE_ASSIGN(description.architecture, fields.Text("architecture"));
  SLUICE_ASSIGN(const Json* layers, fields.Array("layers"));
  for (const Json& value : *layers) {
    SLUICE_ASSIGN(const JsonFields layer,
                  JsonFields::Create(value, std::format("layers[{}]", description.layers.size())));
    SLUICE_ASSIGN(LayerInfo info, ReadLayer(layer, description.checksums.emplace_back(),
                                            description.rescale_checksums.emplace_back()));
    description.layers.push_back(std::move(info));
  }
  return description;
}

// --- Checking ------------------------------------------------------------------------------------

// Notes the names of a layer's matrices and biases in `names`, where each may be only once: they
// become the tensor names of an unpacked file.
Status CheckNames(const LayerInfo& layer, std::set<std::string>& names) {
  for (const Matrix m : kMatrices) {
    const auto& matrix = layer.matrices[m];
    if (!matrix) continue;
    if (matrix->name.empty()) return Fail(ErrorCode::kInvalidArgument, "{} has no name", Name(m));
    for (const std::string* name : {&matrix->name, &matrix->bias_name}) {
      if (!name->empty() && !names.insert(*name).second) {
        return Fail(ErrorCode::kInvalidArgument, "the name {} comes twice", Quote(*name));
      }
    }
  }
  return {};
}

}  // namespace

Metadata FormatModelMetadata(const ModelDescription& description, size_t length) {
  nlohmann::ordered_json json;
  json["layout"] = kLayoutName;
  json["layout_version"] = kLayoutVersion;
  json["architecture"] = description.architecture;
  json["layers"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < description.layers.size(); ++i) {
    json["layers"].push_back(LayerJson(description.layers[i], description.checksums[i],
                                       description.rescale_checksums[i]));
  }
  // Names from foreign containers may hold bytes that are not UTF-8.
  std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (text.size() < length) text.resize(length, ' ');
  return {{kFormatKey, kFormatValue},
          {kDescriptionKey, text},
          {kChecksumKey, DescriptionChecksum(text)}};
}

size_t DescriptionLength(const Metadata& metadata) { return metadata.at(kDescriptionKey).size(); }

bool IsModelMetadata(const Metadata& metadata) {
  const auto format = metadata.find(kFormatKey);
  return format != metadata.end() && format->second == kFormatValue;
}

Expected<ModelDescription> ParseModelMetadata(const Metadata& metadata) {
  if (!IsModelMetadata(metadata)) {
    const auto format = metadata.find(kFormatKey);
    return Fail(ErrorCode::kInvalidArgument,
                "not a packed model: metadata \"format\" is {}, expected \"{}\"",
                format == metadata.end() ? "missing" : Quote(format->second), kFormatValue);
  }
  const auto text = metadata.find(kDescriptionKey);
  if (text == metadata.end()) {
    return Fail(ErrorCode::kCorrupt, "metadata \"{}\" is missing", kDescriptionKey);
  }
  if (text->second.size() > kMaxDescription) {
    return Fail(ErrorCode::kUnsupported, "the description has {} bytes, at most {} are read",
                text->second.size(), kMaxDescription);
  }
  const Json json = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) {
    return Fail(ErrorCode::kCorrupt, "metadata \"{}\" is not JSON", kDescriptionKey);
  }
  SLUICE_ASSIGN(ModelDescription description, ReadDescription(json));
  if (const Status status = CheckModelDescription(description); !status) {
    const Error& error = status.error();
    return Fail(error.code == ErrorCode::kUnsupported ? error.code : ErrorCode::kCorrupt, "{}",
                error.message);
  }
  // Last, so that a description which is wrong in itself is told what is wrong with it.
  const auto checksum = metadata.find(kChecksumKey);
  const std::string expected = DescriptionChecksum(text->second);
  if (checksum == metadata.end() || checksum->second != expected) {
    return Fail(ErrorCode::kCorrupt, "the description's checksum is {}, metadata \"{}\" says {}",
                expected, kChecksumKey,
                checksum == metadata.end() ? "nothing" : Quote(checksum->second));
  }
  return description;
}

Expected<BlockView> DescribeBlock(const LayerInfo& layer) {
  BlockView block;
  block.d_model = layer.d_model;
  block.d_ff = layer.d_ff;
  block.activation = layer.activation;
  block.gated = layer.gated;
  block.input = layer.input_activations;
  block.hidden = layer.hidden_activations;
  for (const Matrix m : kMatrices) {
    const auto& matrix = layer.matrices[m];
    const bool expected = m != Matrix::kGate || layer.gated;
    if (matrix.has_value() != expected) {
      return Fail(ErrorCode::kInvalidArgument, "{} is {}, but the block is {}", Name(m),
                  matrix ? "there" : "missing", layer.gated ? "gated" : "ungated");
    }
    if (!matrix) continue;
    const auto layout = PackedLayout::Create(matrix->format, matrix->rows, matrix->cols);
    if (!layout) return FailIn(Name(m), layout.error());
    block.matrices[m].layout = *layout;
  }
  SLUICE_TRY(CheckBlock(block));
  return block;
}

Status CheckModelDescription(const ModelDescription& description) {
  if (description.layers.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the model has no layers");
  }
  std::set<std::string> names;
  for (size_t i = 0; i < description.layers.size(); ++i) {
    const LayerInfo& layer = description.layers[i];
    if (i > 0 && layer.layer <= description.layers[i - 1].layer) {
      return Fail(ErrorCode::kInvalidArgument, "layer {} comes after layer {}", layer.layer,
                  description.layers[i - 1].layer);
    }
    const std::string where = std::format("layer {}", layer.layer);
    if (const auto block = DescribeBlock(layer); !block) return FailIn(where, block.error());
    if (layer.rescaled && !layer.gated) {
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: it is rescaled, but a block without a gate is not linear in up", where);
    }
    if (const Status status = CheckNames(layer, names); !status) {
      return FailIn(where, status.error());
    }
  }
  return {};
}

}  // namespace sluice
