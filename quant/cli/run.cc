// sluice run: one block of a packed file on inputs from a file.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <format>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/cli/files.h"
#include "quant/cli/options.h"
#include "quant/report/numbers.h"
#include "quant/report/printable.h"
#include "sluice/cpu.h"
#include "sluice/model.h"
#include "src/base/atomic_file.h"
#include "src/base/status.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// Tokens that are in memory at a time, as large a batch as any kernel profits from.
constexpr size_t kChunkTokens = 512;

struct Options {
  std::string file;
  size_t layer = 0;
  std::string input;
  std::string output;
  std::string backend = "highway";
  std::string target;
  size_t threads = 0;
  bool quiet = false;
};

// Tensor x of the input file: F32 [t, d_model].
Expected<const SafetensorsEntry*> FindX(const SafetensorsFile& file, size_t d_model) {
  const SafetensorsEntry* x = file.Find("x");
  if (x == nullptr) {
    return Fail(ErrorCode::kNotFound, "{}: there is no tensor \"x\"; its first is \"{}\"",
                file.path(), file.entries().front().name);
  }
  if (x->dtype != "F32" || x->shape.size() != 2 || x->shape[1] != d_model) {
    return Fail(ErrorCode::kInvalidArgument, "{}: x is {} {}, the block takes F32 [t, {}]",
                file.path(), x->dtype, ShapeText(x->shape), d_model);
  }
  return x;
}

// Rows of y that hold a value which is not finite.
size_t CountNotFinite(MatrixView<const float> y) {
  size_t count = 0;
  for (size_t t = 0; t < y.rows; ++t) {
    if (!std::ranges::all_of(y.row(t), [](float v) { return std::isfinite(v); })) ++count;
  }
  return count;
}

// Runs x through the block, chunk by chunk, into `output`; returns how many rows of y are not
// finite.
Expected<size_t> RunChunks(const Ffn& ffn, const SafetensorsEntry& x, AtomicFile& output) {
  const size_t tokens = x.shape[0];
  const size_t d = ffn.d_model();
  const size_t chunk = std::min(tokens, kChunkTokens);
  SLUICE_ASSIGN(Workspace workspace, ffn.Plan(chunk));
  std::vector<float> inputs(chunk * d);
  std::vector<float> outputs(chunk * d);
  size_t not_finite = 0;
  for (size_t first = 0; first < tokens; first += chunk) {
    const size_t count = std::min(chunk, tokens - first);
    // A copy: in a file of someone else's making, x need not be aligned.
    std::memcpy(inputs.data(), x.bytes.data() + first * d * sizeof(float),
                count * d * sizeof(float));
    const MatrixView<float> y(outputs.data(), count, d);
    SLUICE_TRY(ffn.Forward(MatrixView<const float>(inputs.data(), count, d), y, workspace));
    not_finite += CountNotFinite(y);
    SLUICE_TRY(output.Write(std::as_bytes(std::span(outputs.data(), count * d))));
  }
  return not_finite;
}

Status Run(const Options& options) {
  SLUICE_TRY(CheckOutputs({options.output}, {options.file, options.input}));
  SLUICE_ASSIGN(const Model model, OpenPacked(options.file));
  SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(options.threads));
  SLUICE_ASSIGN(const Ffn ffn,
                model.Layer(options.layer, {options.backend, options.target, &pool}));
  SLUICE_ASSIGN(const SafetensorsFile input, SafetensorsFile::Open(options.input));
  SLUICE_ASSIGN(const SafetensorsEntry* x, FindX(input, ffn.d_model()));
  SLUICE_ASSIGN(AtomicFile output, AtomicFile::Create(options.output));
  SLUICE_ASSIGN(const std::string header,
                SafetensorsHeader({{"y", "F32", {x->shape[0], ffn.d_model()}}}, {}));
  SLUICE_TRY(output.Write(header));
  const auto not_finite = RunChunks(ffn, *x, output);
  if (!not_finite) {
    return Fail(not_finite.error().code, "{}: layer {}: {}", options.file, options.layer,
                not_finite.error().message);
  }
  SLUICE_TRY(output.Commit());
  if (*not_finite != 0) {
    PrintWarning(
        std::format("{} of {} in y are not finite: x or the hidden vector holds NaN or "
                    "infinity there, or the result is too large for F32",
                    *not_finite, Plural(x->shape[0], "token")));
  }
  if (!options.quiet) {
    Print(std::format("{}: {} of layer {} by {}, {}\n", Printable(options.output),
                      Plural(x->shape[0], "token"), options.layer, ffn.Describe(),
                      Plural(pool.threads(), "thread")));
  }
  return {};
}

}  // namespace

void AddRun(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "run",
      "Run one layer of a packed file on inputs from a file.\n"
      "Reads the tensor x, F32 [tokens, d_model], and writes the tensor y of the same shape, the "
      "block's output without the residual. A token whose x or hidden vector holds NaN or infinity "
      "gets a row of NaN; the others are not affected by it.");
  sub->add_option("FILE", options->file, "The packed file, written by `sluice quantize`.")
      ->required();
  AddParsed(*sub, "--layer", options->layer, "N", ParseNumber,
            "The layer, by the model's own number, counted from 0.")
      ->required();
  sub->add_option("--input", options->input, "A safetensors file with the tensor x.")
      ->type_name("X.safetensors")
      ->required();
  sub->add_option("-o,--output", options->output,
                  "The safetensors file to write the tensor y to. It is replaced if it exists.")
      ->type_name("Y.safetensors")
      ->required();
  AddParsed(
      *sub, "--backend", options->backend, "B", ParseBackend,
      "What computes it: highway, the library's own kernels; xnnpack, which quantizes "
      "activations in its own way (qd8); reference, scalar code that defines highway's result "
      "bit for bit.")
      ->default_str("highway");
  AddParsed(
      *sub, "--target", options->target, "T", ParseTarget,
      "The instruction set that highway is to use instead of the best one; `sluice cpu` lists "
      "them.");
  AddThreads(*sub, options->threads);
  AddQuiet(*sub, options->quiet, "Print nothing but warnings and errors.");
  sub->footer(
      "Examples:\n"
      "  sluice run smol.safetensors --layer 0 --input x.safetensors --output y.safetensors\n"
      "  sluice run smol.safetensors --layer 29 --input x.safetensors --output y.safetensors \\\n"
      "      --backend xnnpack --threads 1");
  sub->callback([options, &invocation] { invocation.run = [options] { return Run(*options); }; });
}

}  // namespace sluice
