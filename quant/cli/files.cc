#include "quant/cli/files.h"

#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "quant/checkpoint/gguf.h"
#include "quant/checkpoint/locate.h"
#include "quant/report/report_html.h"
#include "quant/report/report_json.h"
#include "quant/report/report_markdown.h"
#include "src/base/mapped_file.h"
#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/file/model_description.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// Enough tokens for averages that a second run with other numbers confirms; any seed serves.
constexpr size_t kRandomTokens = 64;
constexpr uint64_t kRandomSeed = 1;

// Two paths of one file; of files that are not there, two spellings of one path.
bool SameFile(const std::string& a, const std::string& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  // Of a relative path whose first part is not there, weakly_canonical makes no absolute one.
  const auto canonical = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  };
  const auto path_a = canonical(a);
  if (error) return a == b;
  const auto path_b = canonical(b);
  return error ? a == b : path_a == path_b;
}

}  // namespace

std::vector<std::string> FilesOfModel(const std::string& model,
                                      const std::optional<std::string>& config) {
  std::vector<std::string> files = {model};
  const auto located = LocateCheckpoint(model, config);
  if (!located) return files;
  files.insert(files.end(), located->weights.begin(), located->weights.end());
  for (const std::string* file : {&located->index, &located->config}) {
    if (!file->empty()) files.push_back(*file);
  }
  return files;
}

Status CheckOutputs(const std::vector<std::string>& outputs,
                    const std::vector<std::string>& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == "-") {
      return Fail(ErrorCode::kInvalidArgument,
                  "-: nothing is written to standard output; ./- is a file of that name");
    }
    for (const std::string& input : inputs) {
      if (!SameFile(outputs[i], input)) continue;
      return Fail(ErrorCode::kInvalidArgument, "{}: is an input ({}) and would be overwritten",
                  outputs[i], input);
    }
    for (size_t j = 0; j < i; ++j) {
      if (!SameFile(outputs[i], outputs[j])) continue;
      return Fail(ErrorCode::kInvalidArgument, "{}: is to be written twice", outputs[i]);
    }
  }
  return {};
}

bool IsPacked(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const auto file = SafetensorsFile::Open(path);
  return file && IsModelMetadata(file->metadata());
}

namespace {

// What opening a model came to; of a packed file, that it is none.
template <class T>
Expected<T> UnlessPacked(const std::string& path, Expected<T> opened) {
  if (opened || !IsPacked(path)) return opened;
  return Fail(ErrorCode::kInvalidArgument, "{}: is a packed file of sluice, not a checkpoint",
              path);
}

}  // namespace

Expected<Model> OpenPacked(const std::string& path) {
  Expected<Model> model = Model::Open(path);
  if (model) return model;
  const auto mapped = MappedFile::Open(path);
  if (mapped && mapped->bytes().size() >= kGgufMagic.size() &&
      std::memcmp(mapped->bytes().data(), kGgufMagic.data(), kGgufMagic.size()) == 0) {
    return Fail(ErrorCode::kInvalidArgument, "{}: is a GGUF checkpoint; quantize it first", path);
  }
  return model;
}

Expected<std::vector<Model>> OpenVerified(const std::vector<std::string>& paths) {
  std::vector<Model> models;
  for (const std::string& path : paths) {
    SLUICE_ASSIGN(Model model, OpenPacked(path));
    SLUICE_TRY(model.Verify());
    models.push_back(std::move(model));
  }
  return models;
}

Expected<Checkpoint> OpenCheckpoint(const std::string& path,
                                    const std::optional<std::string>& config) {
  return UnlessPacked(path, Checkpoint::Open(path, config));
}

Expected<Decoder> OpenDecoder(const std::string& path, const std::optional<std::string>& config) {
  return UnlessPacked(path, Decoder::Open(path, config));
}

Expected<Calibration> OpenCalibration(const std::optional<std::string>& path) {
  if (path) return Calibration::Open(*path);
  return Calibration::Random(kRandomTokens, kRandomSeed);
}

Expected<ReportPath> ParseReportPath(std::string_view text) {
  if (text.ends_with(".json")) return ReportPath{std::string(text), ReportForm::kJson};
  if (text.ends_with(".html")) return ReportPath{std::string(text), ReportForm::kHtml};
  if (text.ends_with(".md")) return ReportPath{std::string(text), ReportForm::kMarkdown};
  return Fail(ErrorCode::kInvalidArgument, "{} ends in none of .json, .html and .md", Quote(text));
}

Expected<ReportFiles> ReportFiles::Create(const std::vector<ReportPath>& paths) {
  ReportFiles files;
  for (const ReportPath& path : paths) {
    SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(path.path));
    files.outputs_.push_back({path.form, std::move(file)});
  }
  return files;
}

namespace {

std::string InForm(ReportForm form, std::span<const ModelReport> reports,
                   const ReportOrigin& origin) {
  switch (form) {
    case ReportForm::kHtml:
      return ReportHtml(reports, origin);
    case ReportForm::kMarkdown:
      return ReportMarkdown(reports, origin);
    case ReportForm::kJson:
      break;
  }
  return ReportJson(reports);
}

}  // namespace

Status ReportFiles::Write(std::span<const ModelReport> reports, const ReportOrigin& origin) {
  for (Output& output : outputs_) {
    SLUICE_TRY(output.file.Write(InForm(output.form, reports, origin)));
  }
  return {};
}

Status ReportFiles::Commit() {
  for (Output& output : outputs_) SLUICE_TRY(output.file.Commit());
  return {};
}

}  // namespace sluice
