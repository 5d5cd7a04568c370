// Files that a command reads and writes.
#ifndef SLUICE_QUANT_CLI_FILES_H_
#define SLUICE_QUANT_CLI_FILES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/analysis/block_report.h"
#include "quant/analysis/calibration.h"
#include "quant/checkpoint/checkpoint.h"
#include "quant/decoder/decoder.h"
#include "quant/report/report_page.h"
#include "sluice/error.h"
#include "sluice/model.h"
#include "src/base/atomic_file.h"

namespace sluice {

// Every file that a model consists of, to keep outputs off them. Empty if it cannot be found:
// opening it will say why.
std::vector<std::string> FilesOfModel(const std::string& model,
                                      const std::optional<std::string>& config);

// Errors: an output that is one of the inputs, or that is named twice; by whatever path.
Status CheckOutputs(const std::vector<std::string>& outputs,
                    const std::vector<std::string>& inputs);

// Whether `path` is a file that `sluice quantize` wrote, sound or not.
bool IsPacked(const std::string& path);

// Model::Open, Checkpoint::Open and Decoder::Open; one that is given what the other takes says so.
Expected<Model> OpenPacked(const std::string& path);
// Several, and their checksums, or damage would be reported as quantization error.
Expected<std::vector<Model>> OpenVerified(const std::vector<std::string>& paths);
Expected<Checkpoint> OpenCheckpoint(const std::string& path,
                                    const std::optional<std::string>& config);
Expected<Decoder> OpenDecoder(const std::string& path, const std::optional<std::string>& config);

// The inputs that blocks are judged on: of a file, or random ones, the same every time.
Expected<Calibration> OpenCalibration(const std::optional<std::string>& path);

enum class ReportForm : uint8_t { kJson, kHtml, kMarkdown };
struct ReportPath {
  std::string path;
  ReportForm form = ReportForm::kJson;
};
// A path that ends in .json, .html or .md.
Expected<ReportPath> ParseReportPath(std::string_view text);

// The files that a report goes to. Made before the work starts, so that a directory that cannot be
// written to costs no time; all appear together in Commit.
class ReportFiles {
 public:
  static Expected<ReportFiles> Create(const std::vector<ReportPath>& paths);

  // Of several packed files, all in one.
  Status Write(std::span<const ModelReport> reports, const ReportOrigin& origin);
  Status Commit();

 private:
  struct Output {
    ReportForm form;
    AtomicFile file;
  };
  std::vector<Output> outputs_;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_FILES_H_
