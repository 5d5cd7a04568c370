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
#include "quant/report/evaluation_file.h"
#include "quant/report/report_text.h"
#include "sluice/cpu.h"
#include "sluice/model.h"
#include "src/base/status.h"

namespace sluice {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> files;
  std::optional<std::string> calibration;
  std::optional<std::string> config;
  std::optional<std::string> json;
  std::optional<std::string> html;
  std::optional<std::string> markdown;
  std::optional<std::string> evaluation;
  std::string backend = "highway";
  size_t threads = 0;
  bool quiet = false;
  std::string command;
};

// Before the work starts, which takes long.
Status CheckFiles(const Options& options, const std::vector<ReportPath>& forms) {
  std::vector<std::string> outputs;
  outputs.reserve(forms.size());
  for (const ReportPath& form : forms) outputs.push_back(form.path);
  std::vector<std::string> inputs = FilesOfModel(options.model, options.config);
  inputs.insert(inputs.end(), options.files.begin(), options.files.end());
  for (const auto& input : {options.calibration, options.evaluation}) {
    if (input) inputs.push_back(*input);
  }
  return CheckOutputs(outputs, inputs);
}

// The files' losses, in their order; of none without --eval.
Expected<std::vector<std::optional<ModelLoss>>> Losses(const Options& options) {
  std::vector<std::optional<ModelLoss>> losses(options.files.size());
  if (!options.evaluation) return losses;
  SLUICE_ASSIGN(const Evaluation evaluation, ReadEvaluation(*options.evaluation));
  for (size_t i = 0; i < losses.size(); ++i) {
    SLUICE_ASSIGN(losses[i], LossOf(evaluation, *options.evaluation, options.files[i]));
  }
  return losses;
}

Expected<std::vector<ModelReport>> Compare(const Options& options, const Checkpoint& checkpoint,
                                           const std::vector<Model>& models,
                                           const Calibration& calibration, ThreadPool& pool) {
  SLUICE_ASSIGN(const std::vector<std::optional<ModelLoss>> losses, Losses(options));
  std::vector<ModelReport> reports;
  for (size_t i = 0; i < models.size(); ++i) {
    const Model& model = models[i];
    Progress progress("comparing with FP32", options.quiet);
    const ReportOptions report_options = {
        .backend = options.backend, .pool = &pool, .progress = [&](size_t done, size_t all) {
          progress.Show(done, all, std::format("layer {}", model.layers()[done - 1].layer));
        }};
    SLUICE_ASSIGN(ModelReport report, BuildReport(checkpoint, model, calibration, report_options));
    report.loss = losses[i];
    reports.push_back(std::move(report));
  }
  return reports;
}

void Show(const std::vector<ModelReport>& reports, bool quiet) {
  for (const ModelReport& report : reports) {
    if (!quiet) {
      Print((&report == reports.data() ? "" : "\n") + ReportText(report));
      continue;
    }
    const std::string file = reports.size() == 1 ? "" : report.file + ": ";
    for (const std::string& warning : report.warnings) PrintWarning(file + warning);
  }
}

Status Report(const Options& options) {
  std::vector<ReportPath> forms;
  if (options.json) forms.push_back({*options.json, ReportForm::kJson});
  if (options.html) forms.push_back({*options.html, ReportForm::kHtml});
  if (options.markdown) forms.push_back({*options.markdown, ReportForm::kMarkdown});
  SLUICE_TRY(CheckFiles(options, forms));
  SLUICE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(options.model, options.config));
  SLUICE_ASSIGN(const std::vector<Model> models, OpenVerified(options.files));
  SLUICE_ASSIGN(const Calibration calibration, OpenCalibration(options.calibration));
  SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(options.threads));
  SLUICE_ASSIGN(ReportFiles files, ReportFiles::Create(forms));
  SLUICE_ASSIGN(const std::vector<ModelReport> reports,
                Compare(options, checkpoint, models, calibration, pool));
  Show(reports, options.quiet);
  SLUICE_TRY(files.Write(reports, {options.command, SLUICE_VERSION}));
  return files.Commit();
}

}  // namespace

void AddReport(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "report",
      "Compare packed files with the model they were made from.\n"
      "Runs every quantized block and computes the same block in double precision from the "
      "unquantized weights, on the same inputs. Says how far apart they are, and how far they "
      "would be "
      "if only gate, only up, only down, or only the activations were quantized; which tokens, "
      "neurons and weights the error comes from; and what looks wrong: gate and up swapped, "
      "weights "
      "that are not the model's, inputs that no model produces. FILE may come from any model of "
      "the "
      "same shapes.");
  sub->add_option("MODEL", options->model, kModelHelp)->required();
  sub->add_option(
         "FILE", options->files,
         "Packed files that `sluice quantize` made of MODEL; several are shown side by side.")
      ->required();
  sub->add_option(
         "--calibration", options->calibration,
         "Real inputs of the blocks: a safetensors file with a tensor "
         "model.layers.N.mlp.input, F32 [tokens, d_model], for each layer N. Without it the "
         "inputs are random numbers, and the report says so loudly.")
      ->type_name("FILE");
  sub->add_option(
         "--eval", options->evaluation,
         "What `sluice eval MODEL FILE --json EVAL` wrote: the model's loss comes first in "
         "the report.")
      ->type_name("EVAL");
  sub->add_option("--json", options->json,
                  "Write the report as JSON, schema sluice.report/1; of several files, "
                  "sluice.reports/1.")
      ->type_name("FILE");
  sub->add_option("--html", options->html,
                  "Write the report as one web page that needs no network and no scripts.")
      ->type_name("FILE");
  sub->add_option("--markdown", options->markdown,
                  "Write the report as Markdown, for an issue or a README.")
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
      "  sluice report model.gguf int4.safetensors int8.safetensors --html report.html\n"
      "  sluice eval SmolLM2-135M smol.safetensors --tokens tokens.npy --json eval.json\n"
      "  sluice report SmolLM2-135M smol.safetensors --eval eval.json --markdown report.md");
  sub->callback([options, &invocation] {
    options->command = invocation.command;
    invocation.run = [options] { return Report(*options); };
  });
}

}  // namespace sluice
