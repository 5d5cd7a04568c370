// sluice quantize: a checkpoint into a packed file.
#include <format>
#include <memory>
#include <string>

#include "quant/cli/command.h"
#include "quant/cli/files.h"
#include "quant/cli/options.h"
#include "quant/cli/quantize_job.h"

namespace sluice {
namespace {

void AddFormats(CLI::App& sub, FormatRequest& formats) {
  AddParsed(
      sub, "--weights", formats.weights, "FMT", ParseWeightFormat,
      std::format("Weight format of all matrices: {}. qb4w:32 is int4 with a scale for every 32 "
                  "weights, qc8w int8 with one for every output.",
                  FormatNames()))
      ->default_str("qb4w:32");
  for (const Matrix m : kMatrices) {
    const std::string name(Name(m));
    AddParsed(sub, "--" + name, formats.matrices[m], "FMT", ParseWeightFormat,
              std::format("Weight format of {} in all layers, in place of --weights.", name));
  }
  AddParsedList(
      sub, "--override", formats.overrides, "LAYERS:MATRIX=FMT", ParseFormatOverride, kNoDelimiter,
      "Weight format of one matrix in some layers, as in 0-3,29:down=qc8w or *:gate=bf16. May "
      "be given again; the last one that names a matrix wins. One that names no matrix of "
      "the model is an error.");
  AddParsed(sub, "--layers", formats.layers, "A-B", ParseLayerRange,
            "Quantize only layers A to B, both included, counted from 0. They keep their numbers.");
}

void AddBudget(CLI::App& sub, FormatBudget& budget) {
  CLI::Option* bits =
      sub.add_option("--bits", budget.bits,
                     "Choose a format for each matrix of each layer, N bits per weight on average "
                     "at most, so that the model's predicted loss is least. What each format costs "
                     "is measured first, on a part of --tokens or --text.")
          ->type_name("N")
          ->check(CLI::PositiveNumber);
  CLI::Option* size = sub.add_option("--size", budget.bytes,
                                     "Likewise, so that the matrices take at most N bytes; as in "
                                     "60MB.")
                          ->type_name("N")
                          ->transform(CLI::AsSizeValue(true));
  CLI::Option* loss =
      sub.add_option("--max-error", budget.loss,
                     "Likewise, the smallest file whose predicted loss, the KL divergence in nats "
                     "per token, is at most X.")
          ->type_name("X")
          ->check(CLI::PositiveNumber);
  size->excludes(bits);
  loss->excludes(bits)->excludes(size);
  for (CLI::Option* option : {bits, size, loss}) {
    for (const char* fixed : {"--weights", "--gate", "--up", "--down", "--override"}) {
      option->excludes(fixed);
    }
  }
}

void AddFiles(CLI::App& sub, QuantizeOptions& options) {
  sub.add_option("MODEL", options.model, kModelHelp)->required();
  sub.add_option(
         "-o,--output", options.output,
         "The packed file to write, a safetensors file that `sluice run` maps into memory. It "
         "appears when it is complete, or not at all.")
      ->type_name("FILE")
      ->required();
  sub.add_option(
         "--calibration", options.calibration,
         "Real inputs of the blocks: a safetensors file with a tensor "
         "model.layers.N.mlp.input, F32 [tokens, d_model], for each layer N. The outputs of "
         "the quantized blocks are compared with FP32's on them, and --method may use them.")
      ->type_name("FILE");
  AddParsedList(sub, "--report", options.reports, "FILE.json|FILE.html|FILE.md", ParseReportPath,
                kNoDelimiter,
                "Write a report of the errors, for programs, as a web page or as Markdown. May be "
                "given again. "
                "Without --calibration it is made from random inputs, and says so.");
}

void AddMethod(CLI::App& sub, QuantizeOptions& options) {
  AddParsed(sub, "--method", options.method, "rtn|mse|gptq", ParseMethod,
            "How integers and scales are chosen. rtn rounds to nearest and looks at the weights "
            "only. mse searches scales for the inputs that blocks really get. gptq lets later "
            "weights make up for the rounding of earlier ones, then refines scales and integers "
            "together. Both need --tokens or --text, on which the model is run "
            "layer by layer, each on what the quantized layers before it give, or --calibration. A "
            "matrix that they do not "
            "improve on tokens kept aside for this falls back, with a warning.")
      ->default_str("rtn");
  AddTokens(sub, options.tokens);
  sub.add_flag_callback(
      "--no-rescale", [&options] { options.rescale = false; },
      "Do not rescale up's rows against down's columns. mse and gptq do, layer by layer, "
      "where it lowers the error of the block; what the block computes stays the same, and "
      "the file keeps the factors for comparisons with the model.");
  sub.add_flag("--resume", options.resume,
               "Go on where a run with --tokens or --text was killed, from what it left in "
               "FILE.partial.");
}

}  // namespace

void AddQuantize(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<QuantizeOptions>();
  CLI::App* sub = app.add_subcommand(
      "quantize",
      "Quantize a model's feed-forward layers into one packed file.\n"
      "Reads gate, up and down of every layer, rounds each to the format asked for, and writes "
      "them "
      "in the layout that the kernels run from. Needs memory for one matrix at a time (with "
      "--method, for one layer, its inputs' moments and the text's vectors), not for the "
      "model. Formats are never changed behind your back; the table at the end shows what each "
      "matrix "
      "got.");
  AddFiles(*sub, *options);
  AddMethod(*sub, *options);
  AddFormats(*sub, options->formats);
  AddBudget(*sub, options->budget);
  AddParsed(
      *sub, "--activations", options->activations, "row|block", ParseQuantizedActivation,
      "How the vectors that the matrices multiply are quantized to int8 at run time: one scale "
      "for each token, or one for every 32 values. The default is block where weights have "
      "blocks, row where they have not. f32 and bf16 matrices take neither.");
  AddConfig(*sub, options->config);
  AddThreads(*sub, options->threads);
  sub->add_flag(
      "--strict", options->strict,
      "Make every warning an error, before FILE appears: a format other than the one asked "
      "for, a matrix of zeros only, a layer without calibration.");
  sub->add_flag("--force", options->force, "Replace FILE if it exists.");
  AddQuiet(*sub, options->quiet, "Print nothing but warnings and errors.");
  sub->footer(
      "Examples:\n"
      "  sluice quantize SmolLM2-135M -o smol.safetensors\n"
      "  sluice quantize model.gguf -o model.safetensors --gate qb4w:32 --up qb4w:64 --down qc8w\n"
      "  sluice quantize SmolLM2-135M -o smol.safetensors --method gptq --tokens text.npy\n"
      "  sluice quantize SmolLM2-135M -o smol.safetensors --override 0-1,29:down=qb8w:32 \\\n"
      "      --calibration inputs.safetensors --report smol.html --report smol.json");
  sub->callback([options, &invocation] {
    options->command = invocation.command;
    invocation.run = [options] { return QuantizeModel(*options); };
  });
}

}  // namespace sluice
