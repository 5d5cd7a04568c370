// sluice inspect: what is in a checkpoint or in a packed file.
#include <cstddef>
#include <cstdint>
#include <format>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quant/analysis/accounting.h"
#include "quant/checkpoint/checkpoint.h"
#include "quant/checkpoint/locate.h"
#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/cli/files.h"
#include "quant/cli/options.h"
#include "quant/report/json_text.h"
#include "quant/report/numbers.h"
#include "quant/report/printable.h"
#include "quant/report/text_table.h"
#include "sluice/model.h"
#include "src/base/mapped_file.h"
#include "src/base/status.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// A checkpoint and a packed file in the same terms.
struct InspectedMatrix {
  std::string name;
  std::string type;  // a checkpoint's "BF16", "Q4_K"; a packed file's "qb4w:32"
  size_t rows = 0;
  size_t cols = 0;
  uint64_t bytes = 0;
  bool has_bias = false;
};

struct InspectedLayer {
  size_t layer = 0;
  size_t d_model = 0;
  size_t d_ff = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  ActivationFormat input = ActivationFormat::kFloat;
  ActivationFormat hidden = ActivationFormat::kFloat;
  PerMatrix<std::optional<InspectedMatrix>> matrices;
};

struct Inspection {
  std::string model;
  std::string kind;  // for a person
  std::string architecture;
  uint64_t file_bytes = 0;  // of a packed file
  std::vector<InspectedLayer> layers;
  FfnTotals totals;
};

std::string TypeOf(const SourceMatrix& matrix) { return matrix.type; }
std::string TypeOf(const MatrixInfo& matrix) { return Name(matrix.format); }

template <class Layer>
InspectedLayer Describe(const Layer& layer) {
  InspectedLayer inspected;
  inspected.layer = layer.layer;
  inspected.d_model = layer.d_model;
  inspected.d_ff = layer.d_ff;
  inspected.activation = layer.activation;
  inspected.gated = layer.gated;
  for (const Matrix m : kMatrices) {
    const auto& matrix = layer.matrices[m];
    if (!matrix) continue;
    inspected.matrices[m] = {matrix->name, TypeOf(*matrix), matrix->rows,
                             matrix->cols, matrix->bytes,   !matrix->bias_name.empty()};
  }
  return inspected;
}

Inspection Describe(const Checkpoint& checkpoint) {
  Inspection inspection;
  inspection.model = checkpoint.path();
  inspection.kind = "checkpoint";
  inspection.architecture = checkpoint.architecture();
  for (const SourceLayer& layer : checkpoint.layers()) inspection.layers.push_back(Describe(layer));
  inspection.totals = Account(checkpoint.layers());
  return inspection;
}

Inspection Describe(const Model& model) {
  Inspection inspection;
  inspection.model = model.path();
  inspection.kind = "packed file";
  inspection.architecture = model.architecture();
  inspection.file_bytes = model.file_bytes();
  for (const LayerInfo& layer : model.layers()) {
    inspection.layers.push_back(Describe(layer));
    inspection.layers.back().input = layer.input_activations;
    inspection.layers.back().hidden = layer.hidden_activations;
  }
  inspection.totals = Account(model.layers());
  return inspection;
}

std::string InspectionJson(const Inspection& inspection) {
  Json layers = Json::array();
  for (const InspectedLayer& layer : inspection.layers) {
    Json matrices = Json::object();
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      const InspectedMatrix& matrix = *layer.matrices[m];
      matrices[Name(m)] = {
          {"name", matrix.name},
          {"shape", {matrix.rows, matrix.cols}},
          {"type", matrix.type},
          {"bits_per_weight", BitsPerWeight(matrix.bytes, matrix.rows * matrix.cols)},
          {"bytes", matrix.bytes}};
    }
    layers.push_back(
        {{"layer", layer.layer},
         {"d_model", layer.d_model},
         {"d_ff", layer.d_ff},
         {"activation", Name(layer.activation)},
         {"gated", layer.gated},
         {"activations", {{"input", Name(layer.input)}, {"hidden", Name(layer.hidden)}}},
         {"matrices", std::move(matrices)}});
  }
  const FfnTotals& totals = inspection.totals;
  return JsonText({{"schema", "sluice.inspect/1"},
                   {"model", inspection.model},
                   {"architecture", inspection.architecture},
                   {"layers", std::move(layers)},
                   {"totals",
                    {{"ffn_parameters", totals.parameters()},
                     {"ffn_bytes", totals.bytes},
                     {"bits_per_weight", totals.bits_per_weight()},
                     {"flops_per_token", totals.flops_per_token()}}}});
}

std::string MatrixTable(const Inspection& inspection) {
  TextTable table({{"layer"},
                   {"matrix", Align::kLeft},
                   {"out × in"},
                   {"type", Align::kLeft},
                   {"bits/weight"},
                   {"size"},
                   {"tensor", Align::kLeft}});
  for (const InspectedLayer& layer : inspection.layers) {
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      const InspectedMatrix& matrix = *layer.matrices[m];
      table.AddRow({std::to_string(layer.layer), std::string(Name(m)),
                    std::format("{} × {}", matrix.rows, matrix.cols), Printable(matrix.type),
                    Significant(BitsPerWeight(matrix.bytes, matrix.rows * matrix.cols), 4),
                    Size(static_cast<double>(matrix.bytes)),
                    Printable(matrix.name) + (matrix.has_bias ? "  + bias" : "")});
    }
  }
  return table.Text();
}

std::string BlockLine(const InspectedLayer& layer, size_t count) {
  std::string text =
      std::format("{} of {} × {}, {}, {}", Plural(count, "layer"), layer.d_model, layer.d_ff,
                  Name(layer.activation), layer.gated ? "gated" : "not gated");
  if (layer.input != ActivationFormat::kFloat || layer.hidden != ActivationFormat::kFloat) {
    text +=
        std::format("; activations {} (input), {} (hidden)", Name(layer.input), Name(layer.hidden));
  }
  return text;
}

// One line for each run of layers that are alike.
std::string BlockLines(const Inspection& inspection) {
  std::string text;
  for (size_t i = 0; i < inspection.layers.size();) {
    size_t count = 0;
    const std::string line = BlockLine(inspection.layers[i], 1);
    while (i + count < inspection.layers.size() &&
           BlockLine(inspection.layers[i + count], 1) == line) {
      ++count;
    }
    text += "  " + BlockLine(inspection.layers[i], count) + "\n";
    i += count;
  }
  return text;
}

std::string TotalsText(const Inspection& inspection) {
  const FfnTotals& totals = inspection.totals;
  std::string text = std::format(
      "Feed-forward parameters  {}{}\nStored weights           {}, {} bits each\n"
      "Operations per token     {} (2 for each weight)\n",
      Grouped(totals.parameters()),
      totals.biases == 0 ? "" : std::format(", {} of them biases", Grouped(totals.biases)),
      Size(static_cast<double>(totals.bytes)), Significant(totals.bits_per_weight(), 4),
      Grouped(totals.flops_per_token()));
  const InspectedLayer& first = inspection.layers.front();
  const uint64_t ffn = FfnWeightCount(first.d_model, first.d_ff, first.gated);
  const uint64_t attention = AttentionWeightCount(first.d_model);
  text += std::format("One block                {} weights, {} · {} · {}", Grouped(ffn),
                      first.gated ? 3 : 2, first.d_model, first.d_ff);
  text += std::format("; four {} × {} attention matrices have {}\n", first.d_model, first.d_model,
                      Grouped(attention));
  if (first.gated) {
    text += std::format(
        "Matched width            {} (8d/3): as many weights as an ungated block of width 4d\n",
        Grouped(MatchedGatedWidth(first.d_model)));
  }
  if (inspection.file_bytes != 0) {
    text += std::format("File                     {}\n",
                        Size(static_cast<double>(inspection.file_bytes)));
  }
  return text;
}

std::string InspectionText(const Inspection& inspection) {
  return std::format("{}: {}, architecture {}\n", Printable(inspection.model), inspection.kind,
                     Printable(inspection.architecture)) +
         BlockLines(inspection) + "\n" + MatrixTable(inspection) + "\n" + TotalsText(inspection);
}

struct Options {
  std::string path;
  std::optional<std::string> config;
  bool json = false;
  bool verify = false;
  bool quiet = false;
};

// A file that begins as safetensors files do and is no checkpoint may have been a packed file: then
// what is wrong with it is worth more than that it is no checkpoint.
Status CheckDamaged(const Options& options) {
  constexpr size_t kHeader = sizeof(uint64_t);
  if (LocateCheckpoint(options.path, options.config)) return {};
  const auto mapped = MappedFile::Open(options.path);
  if (!mapped || mapped->bytes().size() <= kHeader) return {};
  if (mapped->bytes()[kHeader] != std::byte{'{'}) return {};
  return SafetensorsFile::Open(options.path).transform([](const auto&) {});
}

// Reads every weight of a checkpoint: values that are no numbers are errors of Load.
Status VerifyCheckpoint(const Checkpoint& checkpoint, bool quiet) {
  Progress progress("reading", quiet);
  size_t done = 0;
  for (const SourceLayer& layer : checkpoint.layers()) {
    for (const Matrix m : kMatrices) {
      if (layer.matrices[m]) SLUICE_TRY(checkpoint.Load(layer.layer, m));
    }
    progress.Show(++done, checkpoint.layers().size(), std::format("layer {}", layer.layer));
  }
  return {};
}

Status Show(const Options& options, const Inspection& inspection, std::string_view verified) {
  Print(options.json ? InspectionJson(inspection) : InspectionText(inspection));
  if (options.verify && !options.json) Print(std::format("Verified: {}\n", verified));
  return {};
}

Status Inspect(const Options& options) {
  if (IsPacked(options.path)) {
    SLUICE_ASSIGN(const Model model, Model::Open(options.path));
    if (options.verify) SLUICE_TRY(model.Verify());
    return Show(options, Describe(model),
                "all checksums match, all integers, scales and biases are in range");
  }
  SLUICE_TRY(CheckDamaged(options));
  SLUICE_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(options.path, options.config));
  for (const std::string& warning : checkpoint.warnings()) PrintWarning(warning);
  if (options.verify) SLUICE_TRY(VerifyCheckpoint(checkpoint, options.quiet));
  return Show(options, Describe(checkpoint), "all feed-forward weights can be read and are finite");
}

}  // namespace

void AddInspect(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "inspect",
      "Show the feed-forward layers of a model or of a packed file.\n"
      "Prints shapes, formats, bits per weight and sizes of every matrix, and what they add up to: "
      "parameters, bytes, operations per token. Which of the two it was given, it finds out "
      "itself.");
  sub->add_option("MODEL|FILE", options->path,
                  std::string(kModelHelp) + " Or a FILE that `sluice quantize` wrote.")
      ->required();
  sub->add_flag("--json", options->json, "Print JSON, schema sluice.inspect/1, instead of text.");
  sub->add_flag(
      "--verify", options->verify,
      "Read everything. Of a packed file: checksums, and that no value is out of range. Of a "
      "model: that every weight can be read and is a number.");
  AddConfig(*sub, options->config);
  AddQuiet(*sub, options->quiet, "No progress.");
  sub->footer(
      "Examples:\n"
      "  sluice inspect SmolLM2-135M\n"
      "  sluice inspect model.gguf --json\n"
      "  sluice inspect smol.safetensors --verify");
  sub->callback(
      [options, &invocation] { invocation.run = [options] { return Inspect(*options); }; });
}

}  // namespace sluice
