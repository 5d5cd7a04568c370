// sluice eval: what quantized blocks do to a model's predictions.
#include <format>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quant/analysis/evaluate.h"
#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/cli/files.h"
#include "quant/cli/options.h"
#include "quant/cli/token_options.h"
#include "quant/decoder/decoder.h"
#include "quant/report/evaluation.h"
#include "sluice/cpu.h"
#include "sluice/model.h"
#include "src/base/atomic_file.h"
#include "src/base/status.h"

namespace sluice {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> files;
  TokenOptions tokens;
  std::optional<std::string> config;
  std::optional<std::string> json;
  size_t threads = 0;
  bool quiet = false;
};

Status CheckFiles(const Options& options) {
  if (!options.json) return {};
  std::vector<std::string> inputs = FilesOfModel(options.model, options.config);
  inputs.insert(inputs.end(), options.files.begin(), options.files.end());
  inputs.push_back(options.tokens.path());
  return CheckOutputs({*options.json}, inputs);
}

void WarnOfFloatLayers(const Evaluation& evaluation, size_t layers) {
  for (const FileEvaluation& file : evaluation.files) {
    if (file.layers == layers) continue;
    PrintWarning(std::format("{} has {} of the model's {} layers; the others ran in FP32",
                             file.file, file.layers, layers));
  }
}

Status Eval(const Options& options) {
  SLUICE_TRY(CheckFiles(options));
  SLUICE_ASSIGN(const Decoder decoder, OpenDecoder(options.model, options.config));
  SLUICE_ASSIGN(const std::vector<Model> files, OpenVerified(options.files));
  SLUICE_ASSIGN(const Tokens tokens, ReadTokens(options.tokens, decoder));
  SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(options.threads));
  std::optional<AtomicFile> json;
  if (options.json) {
    SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(*options.json));
    json.emplace(std::move(file));
  }
  std::optional<Evaluation> evaluation;
  {
    Progress progress("evaluating", options.quiet);
    const EvaluateOptions evaluate = {
        .pool = &pool, .progress = [&](size_t done, size_t all, const std::string& what) {
          progress.Show(done, all, what);
        }};
    SLUICE_ASSIGN(evaluation, Evaluate(decoder, files, tokens, options.tokens.context, evaluate));
  }
  WarnOfFloatLayers(*evaluation, decoder.layers());
  if (!options.quiet) Print(EvaluationText(*evaluation));
  if (!json) return {};
  SLUICE_TRY(json->Write(EvaluationJson(*evaluation)));
  return json->Commit();
}

}  // namespace

void AddEval(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "eval",
      "Measure what packed files do to the model's predictions.\n"
      "Runs the whole model on a text in FP32, and again with the blocks of each FILE in place of "
      "its own, all in one pass. Prints perplexity, the Kullback-Leibler divergence of the "
      "predictions from FP32's in nats, and how often the likeliest token is the same. Every "
      "token of a window but its first is predicted. Needs memory for the text's hidden states, "
      "at most 256 MB, and one layer; logits are never stored. Without FILE: FP32 alone.");
  sub->add_option("MODEL", options->model, kModelHelp)->required();
  sub->add_option("FILE", options->files, "Packed files that `sluice quantize` made of MODEL.");
  AddTokens(*sub, options->tokens);
  sub->add_option("--json", options->json, "Write the figures as JSON, schema sluice.eval/1.")
      ->type_name("FILE");
  AddConfig(*sub, options->config);
  AddThreads(*sub, options->threads);
  AddQuiet(*sub, options->quiet, "Print nothing but warnings and errors.");
  sub->footer(
      "Examples:\n"
      "  quant/tools/text_to_tokens.py SmolLM2-135M text.txt -o tokens.npy\n"
      "  sluice eval SmolLM2-135M int4.safetensors int8.safetensors --tokens tokens.npy\n"
      "  sluice eval tests/data/tiny-llama tiny.safetensors --context 256 \\\n"
      "      --text tests/data/tiny-llama/heldout.txt --json eval.json");
  sub->callback([options, &invocation] {
    RequireTokens(options->tokens);
    invocation.run = [options] { return Eval(*options); };
  });
}

}  // namespace sluice
