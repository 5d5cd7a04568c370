// sluice report: a packed file against the checkpoint it was made from.
#include <format>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quant/analysis/block_report.h"
#include "quant/analysis/calibration.h"
#include "quant/checkpoint/checkpoint.h"
#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/cli/files.h"
#include "quant/cli/options.h"
#include "quant/report/report_text.h"
#include "sluice/cpu.h"
#include "sluice/model.h"
#include "src/base/status.h"

namespace sluice {
namespace {

struct Options {
  std::string model;
  std::string file;
  std::optional<std::string> calibration;
  std::optional<std::string> config;
  std::optional<std::string> json;
  std::optional<std::string> html;
  std::string backend = "highway";
  size_t threads = 0;
  bool quiet = false;
  std::string command;
};

Status Report(const Options& options) {
  std::vector<ReportPath> forms;
  if (options.json) forms.push_back({*options.json, ReportForm::kJson});
  if (options.html) forms.push_back({*options.html, ReportForm::kHtml});
  std::vector<std::string> outputs;
  outputs.reserve(forms.size());
  for (const ReportPath& form : forms) outputs.push_back(form.path);
  std::vector<std::string> inputs = FilesOfModel(options.model, options.config);
  inputs.push_back(options.file);
  if (options.calibration) inputs.push_back(*options.calibration);
  SLUICE_TRY(CheckOutputs(outputs, inputs));
  SLUICE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(options.model, options.config));
  SLUICE_ASSIGN(const Model model, OpenPacked(options.file));
  SLUICE_ASSIGN(const Calibration calibration, OpenCalibration(options.calibration));
  SLUICE_TRY(model.Verify());  // or damage would be reported as quantization error
  SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(options.threads));
  SLUICE_ASSIGN(ReportFiles files, ReportFiles::Create(forms));
  std::optional<ModelReport> report;
  {
    Progress progress("comparing with FP32", options.quiet);
    const ReportOptions report_options = {
        .backend = options.backend, .pool = &pool, .progress = [&](size_t done, size_t all) {
          progress.Show(done, all, std::format("layer {}", model.layers()[done - 1].layer));
        }};
    SLUICE_ASSIGN(report, BuildReport(checkpoint, model, calibration, report_options));
  }
  if (options.quiet) {
    for (const std::string& warning : report->warnings) PrintWarning(warning);
  } else {
    Print(ReportText(*report));
  }
  SLUICE_TRY(files.Write(*report, {options.command, SLUICE_VERSION}));
  return files.Commit();
}

}  // namespace

void AddReport(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "report",
      "Compare a packed file with the model it was made from.\n"
      "Runs every quantized block and computes the same block in double precision from the "
      "unquantized weights, on the same inputs. Says how far apart they are, and how far they "
      "would be "
      "if only gate, only up, only down, or only the activations were quantized.");
  sub->add_option("MODEL", options->model, kModelHelp)->required();
  sub->add_option("FILE", options->file, "The packed file that `sluice quantize` made of MODEL.")
      ->required();
  sub->add_option(
         "--calibration", options->calibration,
         "Real inputs of the blocks: a safetensors file with a tensor "
         "model.layers.N.mlp.input, F32 [tokens, d_model], for each layer N. Without it the "
         "inputs are random numbers, and the report says so loudly.")
      ->type_name("FILE");
  sub->add_option("--json", options->json, "Write the report as JSON, schema sluice.report/1.")
      ->type_name("FILE");
  sub->add_option("--html", options->html,
                  "Write the report as one web page that needs no network and no scripts.")
      ->type_name("FILE");
  AddParsed(
      *sub, "--backend", options->backend, "B", ParseBackend,
      "What computes the quantized blocks: highway, xnnpack (which quantizes activations in its "
      "own way, qd8) or reference.")
      ->default_str("highway");
  AddConfig(*sub, options->config);
  AddThreads(*sub, options->threads);
  AddQuiet(*sub, options->quiet, "Print nothing but warnings and errors.");
  sub->footer(
      "Examples:\n"
      "  sluice report SmolLM2-135M smol.safetensors --calibration inputs.safetensors\n"
      "  sluice report model.gguf model.safetensors --html report.html --json report.json");
  sub->callback([options, &invocation] {
    options->command = invocation.command;
    invocation.run = [options] { return Report(*options); };
  });
}

}  // namespace sluice
