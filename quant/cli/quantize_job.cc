#include "quant/cli/quantize_job.h"

#include <algorithm>
#include <filesystem>
#include <format>
#include <utility>

#include "quant/analysis/accounting.h"
#include "quant/analysis/block_report.h"
#include "quant/analysis/calibration.h"
#include "quant/analysis/measure_matrix.h"
#include "quant/checkpoint/checkpoint.h"
#include "quant/cli/console.h"
#include "quant/cli/files.h"
#include "quant/cli/layer_fits.h"
#include "quant/cli/pick_formats.h"
#include "quant/quantizer/quantizer.h"
#include "quant/quantizer/rescale.h"
#include "quant/report/matrix_summary.h"
#include "quant/report/numbers.h"
#include "quant/report/printable.h"
#include "quant/report/report_text.h"
#include "sluice/cpu.h"
#include "sluice/model.h"
#include "src/base/status.h"
#include "src/base/temporary_file.h"
#include "src/file/model_writer.h"
#include "src/format/pack.h"

namespace sluice {
namespace {

class QuantizeJob {
 public:
  explicit QuantizeJob(const QuantizeOptions& options)
      : options_(options), formats_(options.formats) {}

  Status Run() {
    SLUICE_TRY(CheckMethod());
    SLUICE_TRY(CheckFiles());
    SLUICE_ASSIGN(const Checkpoint checkpoint, OpenCheckpoint(options_.model, options_.config));
    for (const std::string& warning : checkpoint.warnings()) Warn(warning);
    SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(options_.threads));
    if (options_.budget.given()) SLUICE_TRY(Pick(pool));
    SLUICE_ASSIGN(const std::vector<LayerInfo> layers, Plan(checkpoint));
    SLUICE_TRY(CheckCalibration(layers));
    SLUICE_ASSIGN(TemporaryFile packed, TemporaryFile::Beside(options_.output));
    SLUICE_ASSIGN(ReportFiles reports, ReportFiles::Create(options_.reports));
    SLUICE_TRY(NamingTheOutput(packed, Write(checkpoint, layers, packed.name(), pool)));
    SLUICE_TRY(NamingTheOutput(packed, Judge(checkpoint, packed.name(), pool)));
    if (report_) SLUICE_TRY(reports.Write({&*report_, 1}, {options_.command, SLUICE_VERSION}));
    SLUICE_TRY(CheckNothingIsReplaced());  // again: it may have come while we worked
    SLUICE_TRY(packed.Rename());
    SLUICE_TRY(reports.Commit());
    if (!options_.quiet) PrintSummary(checkpoint, layers);
    return {};
  }

 private:
  bool on_text() const { return options_.tokens.tokens || options_.tokens.text; }

  Status CheckMethod() const {
    const bool calibrated = on_text() || options_.calibration;
    if (options_.method != Method::kRtn && !calibrated) {
      return Fail(ErrorCode::kInvalidArgument,
                  "--method {} needs calibration: text, by --tokens FILE or --text FILE, or the "
                  "blocks' inputs, by --calibration FILE",
                  Name(options_.method));
    }
    if (options_.budget.given() && !on_text()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "--bits, --size and --max-error measure what formats cost on a text: --tokens "
                  "FILE or --text FILE");
    }
    if (options_.method == Method::kRtn && on_text() && !options_.budget.given()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "--{} has no effect with --method rtn, which looks at the weights only",
                  options_.tokens.tokens ? "tokens" : "text");
    }
    if (options_.tokens.tokens && options_.tokens.text) {
      return Fail(ErrorCode::kInvalidArgument, "--tokens and --text are two texts; one is taken");
    }
    if (options_.resume && !on_text()) {
      return Fail(ErrorCode::kInvalidArgument, "--resume is for --tokens and --text");
    }
    return {};
  }

  Status CheckFiles() const {
    std::vector<std::string> outputs = {options_.output};
    for (const ReportPath& report : options_.reports) outputs.push_back(report.path);
    std::vector<std::string> inputs = FilesOfModel(options_.model, options_.config);
    for (const auto& input : {options_.calibration, options_.tokens.tokens, options_.tokens.text}) {
      if (input) inputs.push_back(*input);
    }
    SLUICE_TRY(CheckOutputs(outputs, inputs));
    return CheckNothingIsReplaced();
  }

  Status CheckNothingIsReplaced() const {
    std::error_code error;
    if (!options_.force && std::filesystem::is_regular_file(options_.output, error)) {
      return Fail(ErrorCode::kInvalidArgument, "{}: exists already; --force replaces it",
                  options_.output);
    }
    return {};
  }

  void Warn(const std::string& warning) {
    if (std::ranges::contains(warnings_, warning)) return;
    warnings_.push_back(warning);
    PrintWarning(warning);
  }

  // --strict: what has been warned of is an error after all.
  Status CheckStrict() const {
    if (!options_.strict || warnings_.empty()) return {};
    const size_t more = warnings_.size() - 1;
    return Fail(ErrorCode::kInvalidArgument, "{}: not written, because of --strict: {}{}",
                options_.output, warnings_.front(),
                more == 0 ? "" : std::format(" (and {} above)", Plural(more, "warning")));
  }

  // Formats for the budget, as if each had been asked for by --override.
  Status Pick(const ThreadPool& pool) {
    auto picked = PickFormats({.model = options_.model,
                               .config = options_.config,
                               .tokens = options_.tokens,
                               .layers = options_.formats.layers,
                               .activations = options_.activations,
                               .budget = options_.budget,
                               .quiet = options_.quiet},
                              pool);
    if (!picked) return std::unexpected(picked.error());
    formats_.overrides = picked->overrides;
    picked_ = *std::move(picked);
    return {};
  }

  // What the packed file will hold.
  Expected<std::vector<LayerInfo>> Plan(const Checkpoint& checkpoint) {
    const auto plan = PlanFormats(formats_, checkpoint.layers());
    if (!plan) {
      return Fail(plan.error().code, "{}: {}", checkpoint.path(), plan.error().message);
    }
    std::vector<LayerInfo> layers;
    bool quantized = false;
    for (const LayerFormats& formats : *plan) {
      const auto source =
          std::ranges::find(checkpoint.layers(), formats.layer, &SourceLayer::layer);
      SLUICE_ASSIGN(LayerInfo layer, Describe(*source, formats));
      quantized = quantized || layer.input_activations != ActivationFormat::kFloat ||
                  layer.hidden_activations != ActivationFormat::kFloat;
      layers.push_back(std::move(layer));
    }
    if (options_.activations && !quantized) {
      Warn(std::format("--activations {} has no effect: float weights take float activations",
                       Name(*options_.activations)));
    }
    return layers;
  }

  Expected<LayerInfo> Describe(const SourceLayer& source, const LayerFormats& formats) const {
    LayerInfo layer;
    layer.layer = source.layer;
    layer.d_model = source.d_model;
    layer.d_ff = source.d_ff;
    layer.activation = source.activation;
    layer.gated = source.gated;
    const BlockActivations activations =
        options_.activations ? ActivationsFor(formats.formats, source.gated, *options_.activations)
                             : DefaultActivations(formats.formats, source.gated);
    layer.input_activations = activations.input;
    layer.hidden_activations = activations.hidden;
    for (const Matrix m : kMatrices) {
      if (!source.matrices[m]) continue;
      const SourceMatrix& matrix = *source.matrices[m];
      const WeightFormat format = formats.formats[m];
      const auto layout = PackedLayout::Create(format, matrix.rows, matrix.cols);
      if (!layout) {
        return Fail(layout.error().code, "{}: {}: {}", options_.model, matrix.name,
                    layout.error().message);
      }
      layer.matrices[m] = {.name = matrix.name,
                           .format = format,
                           .requested = format,
                           .rows = matrix.rows,
                           .cols = matrix.cols,
                           .bytes = layout->weight_bytes() + layout->scale_bytes(),
                           .bias_name = matrix.bias_name,
                           .method = std::string(MethodOf(format)),
                           .requested_method = std::string(MethodOf(format))};
    }
    layer.rescaled = options_.rescale && options_.method != Method::kRtn &&
                     CanRescale(source.gated, formats.formats);
    return layer;
  }

  // Float formats are not quantized by any method.
  std::string_view MethodOf(WeightFormat format) const {
    return format.quantized() ? Name(options_.method) : "";
  }

  // Everything that can be wrong with the calibration is found before the work starts.
  Status CheckCalibration(const std::vector<LayerInfo>& layers) {
    if (!options_.calibration && options_.reports.empty()) return {};
    SLUICE_ASSIGN(calibration_, OpenCalibration(options_.calibration));
    if (!options_.calibration) {
      if (!options_.strict) return {};  // the report says it, loudly
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: not written, because of --strict: without --calibration no layer has inputs "
                  "for the report",
                  options_.output);
    }
    for (const LayerInfo& layer : layers) {
      SLUICE_ASSIGN(const auto inputs, calibration_->Inputs(layer.layer, layer.d_model));
      if (inputs) continue;
      Warn(std::format("layer {}: {} has no inputs for it; its figures are from RANDOM INPUTS",
                       layer.layer, *options_.calibration));
    }
    return CheckStrict();
  }

  // Errors on the way to the output speak of the temporary file; the user gave another name.
  Status NamingTheOutput(const TemporaryFile& packed, Status status) const {
    if (status) return status;
    std::string& message = status.error().message;
    const std::string& name = packed.name();
    for (size_t at = message.find(name); at != std::string::npos; at = message.find(name, at)) {
      message.replace(at, name.size(), options_.output);
      at += options_.output.size();
    }
    return status;
  }

  Status Write(const Checkpoint& checkpoint, const std::vector<LayerInfo>& layers,
               const std::string& path, const ThreadPool& pool) {
    SLUICE_ASSIGN(ModelWriter writer, ModelWriter::Create(path, checkpoint.architecture(), layers));
    SLUICE_ASSIGN(const std::unique_ptr<LayerFits> fits, Fits(layers, pool));
    Progress progress("quantizing", options_.quiet);
    for (const LayerInfo& layer : layers) {
      matrices_.push_back({layer.layer, {}});
      if (fits) {
        SLUICE_TRY(WriteLayer(checkpoint, layer, *fits, writer));
      } else {
        SLUICE_TRY(WriteNearest(checkpoint, layer, pool, writer));
      }
      progress.Show(matrices_.size(), layers.size(), std::format("layer {}", layer.layer));
    }
    if (fits && picked_) {
      SLUICE_ASSIGN(loss_, fits->Loss());
    }
    SLUICE_TRY(CheckStrict());
    return writer.Finish();
  }

  // Where the method needs them; null for rtn.
  Expected<std::unique_ptr<LayerFits>> Fits(const std::vector<LayerInfo>& layers,
                                            const ThreadPool& pool) const {
    const FitOptions fit = {.method = options_.method, .rescale = options_.rescale};
    if (options_.method == Method::kRtn) return nullptr;
    if (!on_text()) return FitsFromCalibration(*calibration_, fit, pool);
    return FitsFromTokens({.model = options_.model,
                           .config = options_.config,
                           .tokens = options_.tokens,
                           .fit = fit,
                           .partial = options_.output + ".partial",
                           .resume = options_.resume},
                          layers, pool);
  }

  // One matrix in memory at a time.
  Status WriteNearest(const Checkpoint& checkpoint, const LayerInfo& layer, const ThreadPool& pool,
                      ModelWriter& writer) {
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      const MatrixInfo& info = *layer.matrices[m];
      SLUICE_ASSIGN(LinearWeights weights, checkpoint.Load(layer.layer, m));
      const auto quantized = QuantizeRtn(weights.view(), info.format, &pool);
      if (!quantized) {
        return Fail(quantized.error().code, "{}: {}: {}", checkpoint.path(), info.name,
                    quantized.error().message);
      }
      SLUICE_TRY(WriteMatrix(layer, m, weights, {*quantized, info.method, {}}, writer));
    }
    return {};
  }

  // One layer in memory at a time.
  Status WriteLayer(const Checkpoint& checkpoint, const LayerInfo& layer, LayerFits& fits,
                    ModelWriter& writer) {
    SLUICE_ASSIGN(FfnWeights weights, checkpoint.Load(layer.layer));
    const auto fit = fits.Fit(layer, weights);
    if (!fit) {
      return Fail(fit.error().code, "{}: layer {}: {}", checkpoint.path(), layer.layer,
                  fit.error().message);
    }
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m]) continue;
      const MatrixFit& matrix = *fit->matrices[m];
      if (!matrix.note.empty()) {
        Warn(std::format("layer {}: {} is quantized by {}, not {}: {}", layer.layer, Name(m),
                         Name(matrix.method), Name(options_.method), matrix.note));
      }
      const std::string_view method =
          matrix.matrix.format.quantized() ? Name(matrix.method) : std::string_view();
      SLUICE_TRY(WriteMatrix(layer, m, weights.matrices[m], {matrix.matrix, method, fit->rescale},
                             writer));
    }
    if (!layer.rescaled) return {};
    const std::vector<float> ones(layer.d_ff, 1);
    return writer.AddRescale(layer.layer, fit->rescale.empty() ? ones : fit->rescale);
  }

  // What a method made of a matrix.
  struct Outcome {
    const QuantizedMatrix& quantized;
    std::string_view method;
    std::span<const float> rescale;  // of the layer; empty: none
  };

  Status WriteMatrix(const LayerInfo& layer, Matrix m, LinearWeights& weights,
                     const Outcome& outcome, ModelWriter& writer) {
    Note(layer.layer, m, *layer.matrices[m], weights, outcome);
    ApplyRescale(m, outcome.rescale, weights);
    SLUICE_ASSIGN(const PackedMatrix packed, Pack(outcome.quantized, weights.bias));
    return writer.Add(layer.layer, m, packed.view(), std::string(outcome.method));
  }

  // What became of a matrix's weights, for the summary.
  void Note(size_t layer, Matrix m, const MatrixInfo& info, const LinearWeights& weights,
            const Outcome& outcome) {
    MatrixMeasurement measured =
        MeasureMatrix(m, weights.view(), outcome.quantized,
                      Restore(m, outcome.rescale, outcome.quantized), outcome.rescale);
    for (const std::string& warning : measured.warnings) {
      Warn(std::format("layer {}: {}", layer, warning));
    }
    for (const Finding& finding : measured.findings) {
      if (finding.severity == Severity::kInfo) continue;
      Warn(std::format("layer {}: {}", layer, finding.message));
    }
    measured.report.requested = info.requested;
    measured.report.method = outcome.method;
    measured.report.requested_method = info.requested_method;
    measured.report.bits_per_weight = info.bits_per_weight();
    matrices_.back().matrices[m] = measured.report;
  }

  // The report, if it was asked for or calibration given.
  Status Judge(const Checkpoint& checkpoint, const std::string& path, ThreadPool& pool) {
    if (!calibration_) return {};
    SLUICE_ASSIGN(const Model model, Model::Open(path));
    Progress progress("comparing with FP32", options_.quiet);
    const ReportOptions report_options = {
        .pool = &pool, .progress = [&](size_t done, size_t all) {
          progress.Show(done, all, std::format("layer {}", model.layers()[done - 1].layer));
        }};
    SLUICE_ASSIGN(report_, BuildReport(checkpoint, model, *calibration_, report_options));
    report_->file = options_.output;
    for (const std::string& warning : report_->warnings) Warn(warning);
    SLUICE_TRY(CheckStrict());
    if (JudgedOnWhatWasFitted()) report_->warnings.push_back(FlatteringText());
    return {};
  }

  // No mistake, so it is no warning that --strict turns into an error; but whoever reads the
  // figures must know.
  bool JudgedOnWhatWasFitted() const {
    return report_ && options_.method != Method::kRtn && !on_text();
  }

  std::string FlatteringText() const {
    return std::format(
        "the errors are measured on {}, the inputs that {} was fitted to: on others they are "
        "larger; `sluice report` measures them on any",
        *options_.calibration, Name(options_.method));
  }

  void PrintPicked() const {
    Print(picked_->why);
    Print(std::format(
        "  predicted loss, KL divergence in nats per token, each matrix rounded alone by mse: {}\n",
        Significant(picked_->choice.loss)));
    Print(loss_ ? std::format("  measured, all together by {}, on the calibration text: {}\n\n",
                              Name(options_.method), Significant(*loss_))
                : "  not measured: `sluice eval` does, on any text\n\n");
  }

  void PrintSummary(const Checkpoint& checkpoint, const std::vector<LayerInfo>& layers) const {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(options_.output, error);
    Print(std::format("{}: {} of {} quantized into {}, {}\n\n", Printable(options_.model),
                      layers.size(), Plural(checkpoint.layers().size(), "layer"),
                      Printable(options_.output), Size(static_cast<double>(bytes))));
    if (picked_) PrintPicked();
    Print(SummaryText(Summarize(matrices_)));
    Print("\n" + (report_ ? ReportVerdictText(*report_)
                          : SizeVerdictText(Account(layers), DescribeSource(checkpoint, layers))));
    if (JudgedOnWhatWasFitted()) Print(std::format("  note: {}\n", FlatteringText()));
    if (!options_.reports.empty()) Print("\n");
    for (const ReportPath& report : options_.reports) {
      Print(std::format("  report: {}\n", Printable(report.path)));
    }
  }

  const QuantizeOptions& options_;
  FormatRequest formats_;
  std::optional<PickedFormats> picked_;
  std::optional<double> loss_;  // measured, where formats were picked
  std::vector<std::string> warnings_;
  std::optional<Calibration> calibration_;  // none: no report is made
  std::vector<MatricesOfLayer> matrices_;
  std::optional<ModelReport> report_;
};

}  // namespace

Status QuantizeModel(const QuantizeOptions& options) { return QuantizeJob(options).Run(); }

}  // namespace sluice
