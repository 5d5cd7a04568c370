// sluice capture: the inputs of a model's blocks on real text.
#include <algorithm>
#include <format>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quant/analysis/capture.h"
#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/cli/files.h"
#include "quant/cli/options.h"
#include "quant/cli/token_options.h"
#include "quant/decoder/decoder.h"
#include "quant/report/numbers.h"
#include "quant/report/printable.h"
#include "sluice/cpu.h"
#include "src/base/status.h"

namespace sluice {
namespace {

struct Options {
  std::string model;
  std::string output;
  TokenOptions tokens;
  size_t sample = 1024;
  size_t seed = 1;
  std::optional<std::string> config;
  size_t threads = 0;
  bool quiet = false;
};

Expected<size_t> ParseSample(std::string_view text) { return ParsePositive(text, size_t{1} << 24); }

Status Run(const Options& options) {
  std::vector<std::string> inputs = FilesOfModel(options.model, options.config);
  inputs.push_back(options.tokens.path());
  SLUICE_TRY(CheckOutputs({options.output}, inputs));
  SLUICE_ASSIGN(const Decoder decoder, OpenDecoder(options.model, options.config));
  SLUICE_ASSIGN(const Tokens tokens, ReadTokens(options.tokens, decoder.vocabulary()));
  SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(options.threads));
  {
    Progress progress("running the model", options.quiet);
    const CaptureOptions capture = {.sample = options.sample,
                                    .seed = options.seed,
                                    .pool = &pool,
                                    .progress = [&](size_t done, size_t all) {
                                      progress.Show(done, all, std::format("layer {}", done - 1));
                                    }};
    SLUICE_TRY(Capture(decoder, tokens, capture, options.output));
  }
  if (!options.quiet) {
    Print(std::format("{}: the inputs of {} at {} of {} from {}, and statistics of all\n",
                      Printable(options.output), Plural(decoder.layers(), "block"),
                      std::min(options.sample, tokens.ids.size()),
                      Plural(tokens.ids.size(), "token"), Printable(tokens.source)));
  }
  return {};
}

}  // namespace

void AddCapture(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "capture",
      "Write down what a model's blocks see on real text.\n"
      "Runs the whole model in FP32, layer by layer over all tokens, and keeps the inputs of each "
      "block for some of the tokens, and the second moments and maxima of inputs and hidden "
      "vectors over all of them. The file is what --calibration of other commands takes. Needs "
      "memory for the text's hidden states and one layer.");
  sub->add_option("MODEL", options->model, kModelHelp)->required();
  sub->add_option("-o,--output", options->output,
                  "The safetensors file to write; docs/CALIBRATION.md has its tensors. It appears "
                  "when it is complete, or not at all.")
      ->type_name("FILE")
      ->required();
  AddTokens(*sub, options->tokens);
  AddParsed(*sub, "--sample", options->sample, "N", ParseSample,
            "Tokens whose inputs are kept, chosen at random among all, the same for every layer.")
      ->default_str("1024");
  AddParsed(*sub, "--seed", options->seed, "N", ParseNumber, "Another choice of those tokens.")
      ->default_str("1");
  AddConfig(*sub, options->config);
  AddThreads(*sub, options->threads);
  AddQuiet(*sub, options->quiet, "Print nothing but warnings and errors.");
  sub->footer(
      "Examples:\n"
      "  sluice capture SmolLM2-135M --tokens tokens.npy -o inputs.safetensors\n"
      "  sluice capture tests/data/tiny-llama --text book.txt --context 256 -o inputs.safetensors\n"
      "  sluice report SmolLM2-135M smol.safetensors --calibration inputs.safetensors");
  sub->callback([options, &invocation] {
    RequireTokens(options->tokens);
    invocation.run = [options] { return Run(*options); };
  });
}

}  // namespace sluice
