#include "quant/report/evaluation_file.h"

#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "quant/checkpoint/json_file.h"
#include "src/base/status.h"

namespace sluice {
namespace {

constexpr const char kSchema[] = "sluice.eval/1";

double NumberOrNan(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

FileEvaluation ReadFile(const Json& json) {
  FileEvaluation file;
  file.file = json.at("file").get<std::string>();
  file.bits_per_weight = NumberOrNan(json.at("bits_per_weight"));
  file.layers = json.at("layers").get<size_t>();
  file.perplexity = NumberOrNan(json.at("perplexity"));
  const Json& kl = json.at("kl");
  file.kl.mean = NumberOrNan(kl.at("mean"));
  file.kl.median = NumberOrNan(kl.at("median"));
  file.kl.p99 = NumberOrNan(kl.at("p99"));
  file.kl.max = NumberOrNan(kl.at("max"));
  file.top1_agreement = NumberOrNan(json.at("top1_agreement"));
  for (const Json& position : json.at("per_position")) {
    file.per_position.push_back(NumberOrNan(position));
  }
  return file;
}

Evaluation ReadAll(const Json& json) {
  Evaluation evaluation;
  evaluation.model = json.at("model").get<std::string>();
  evaluation.source = json.at("source").get<std::string>();
  evaluation.tokens = json.at("tokens").get<size_t>();
  evaluation.predictions = json.at("predictions").get<size_t>();
  evaluation.context = json.at("context").get<size_t>();
  evaluation.fp32_perplexity = NumberOrNan(json.at("fp32").at("perplexity"));
  for (const Json& file : json.at("files")) evaluation.files.push_back(ReadFile(file));
  return evaluation;
}

std::string NameOf(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

const FileEvaluation* FindFile(const Evaluation& evaluation, const std::string& path) {
  const FileEvaluation* same_name = nullptr;
  size_t with_name = 0;
  for (const FileEvaluation& file : evaluation.files) {
    std::error_code error;
    if (file.file == path || std::filesystem::equivalent(file.file, path, error)) return &file;
    if (NameOf(file.file) != NameOf(path)) continue;
    same_name = &file;
    ++with_name;
  }
  return with_name == 1 ? same_name : nullptr;
}

}  // namespace

Expected<Evaluation> ReadEvaluation(const std::string& path) {
  SLUICE_ASSIGN(const Json json, ReadJsonFile(path));
  if (const auto schema = json.find("schema"); schema == json.end() || *schema != kSchema) {
    return Fail(ErrorCode::kInvalidArgument,
                "{}: is not what `sluice eval --json` writes: its schema is not {}", path, kSchema);
  }
  // The parser's own accessors say which key is missing or of another type.
  try {
    return ReadAll(json);
  } catch (const Json::exception& error) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {}", path, error.what());
  }
}

Expected<ModelLoss> LossOf(const Evaluation& evaluation, const std::string& path,
                           const std::string& file) {
  if (const FileEvaluation* found = FindFile(evaluation, file)) {
    return ModelLoss{.source = evaluation.source,
                     .tokens = evaluation.tokens,
                     .context = evaluation.context,
                     .fp32_perplexity = evaluation.fp32_perplexity,
                     .file = *found};
  }
  std::string names;
  for (const FileEvaluation& other : evaluation.files) {
    names += (names.empty() ? "" : ", ") + other.file;
  }
  return Fail(ErrorCode::kNotFound, "{}: has no figures of {}, but of {}", path, file,
              names.empty() ? "no file" : names);
}

}  // namespace sluice
