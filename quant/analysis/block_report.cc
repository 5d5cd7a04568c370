#include "quant/analysis/block_report.h"

#include <algorithm>
#include <format>
#include <utility>

#include "quant/analysis/accounting.h"
#include "quant/analysis/compare_block.h"
#include "src/base/cpu_name.h"
#include "src/base/status.h"
#include "src/file/model_impl.h"

namespace sluice {
namespace {

// Of the random inputs that replace missing calibration; any constant serves.
constexpr uint64_t kFallbackSeed = 0;

class ReportBuilder {
 public:
  ReportBuilder(const Checkpoint& checkpoint, const Model& model, const Calibration& calibration,
                const ReportOptions& options)
      : checkpoint_(checkpoint), model_(model), calibration_(calibration), options_(options) {}

  Expected<ModelReport> Build() {
    report_.model = checkpoint_.path();
    report_.source = DescribeSource(checkpoint_, model_.layers());
    report_.file = model_.path();
    report_.calibration_source = calibration_.source();
    report_.calibration_tokens = calibration_.tokens();
    report_.cpu = CpuName();
    WarnOfTheWhole();
    const std::vector<LayerInfo>& layers = model_.layers();
    for (size_t i = 0; i < layers.size(); ++i) {
      if (const Status status = AddLayer(layers[i]); !status) {
        return Fail(status.error().code, "{}: layer {}: {}", model_.path(), layers[i].layer,
                    status.error().message);
      }
      if (options_.progress) options_.progress(i + 1, layers.size());
    }
    AddTotals();
    std::ranges::stable_sort(report_.findings, {}, &Finding::severity);
    return std::move(report_);
  }

 private:
  template <class... Args>
  void Warn(std::format_string<Args...> format, Args&&... args) {
    report_.warnings.push_back(std::format(format, std::forward<Args>(args)...));
  }

  void WarnOfTheWhole() {
    if (calibration_.random()) {
      Warn(
          "RANDOM INPUTS: without calibration the blocks were fed N(0, 1), which no model's text "
          "looks like; real inputs have outliers that make the errors larger or smaller");
    }
    const bool quantized = std::ranges::any_of(model_.layers(), [](const LayerInfo& layer) {
      return std::ranges::any_of(layer.matrices.items,
                                 [](const auto& m) { return m && m->format.quantized(); });
    });
    if (options_.backend == "xnnpack" && quantized) {
      Warn(
          "the xnnpack backend quantizes activations in its own way (qd8, per token, asymmetric); "
          "the attribution to activations is that of the file's own format");
    }
  }

  Status AddLayer(const LayerInfo& info) {
    const auto source = std::ranges::find(checkpoint_.layers(), info.layer, &SourceLayer::layer);
    if (source == checkpoint_.layers().end()) {
      return Fail(ErrorCode::kNotFound, "{} has no such layer", checkpoint_.path());
    }
    WarnOfDifferences(info, *source);
    SLUICE_ASSIGN(const std::vector<float> x, Inputs(info));
    const MatrixView<const float> inputs(x.data(), x.size() / info.d_model, info.d_model);
    SLUICE_ASSIGN(const std::vector<float> y, Forward(info.layer, inputs));
    SLUICE_ASSIGN(const BlockView packed, model_.impl().Block(info.layer));
    SLUICE_ASSIGN(const std::vector<float> rescale, model_.impl().Rescale(info.layer));
    const ExactBlock exact = {source->activation, source->gated,
                              [&](Matrix m) { return checkpoint_.Load(info.layer, m); }};
    SLUICE_ASSIGN(BlockComparison comparison,
                  CompareBlock(exact, packed, inputs, {y.data(), inputs.rows, inputs.cols},
                               options_.pool, rescale));
    comparison.report.layer = info.layer;
    for (const Matrix m : kMatrices) {
      auto& matrix = comparison.report.matrices[m];
      if (!matrix) continue;
      matrix->requested = info.matrices[m]->requested;
      matrix->method = info.matrices[m]->method;
      matrix->requested_method = info.matrices[m]->requested_method;
      matrix->bits_per_weight = info.matrices[m]->bits_per_weight();
      model_.impl().Release(packed.matrices[m]);
    }
    for (const std::string& warning : comparison.warnings)
      Warn("layer {}: {}", info.layer, warning);
    AddFindings(info.layer, std::move(comparison.findings));
    report_.layers.push_back(std::move(comparison.report));
    return {};
  }

  void AddFindings(size_t layer, std::vector<Finding>&& findings) {
    for (Finding& finding : findings) {
      finding.layer = layer;
      if (finding.severity != Severity::kInfo) Warn("layer {}: {}", layer, finding.message);
      report_.findings.push_back(std::move(finding));
    }
  }

  void WarnOfDifferences(const LayerInfo& info, const SourceLayer& source) {
    if (info.activation != source.activation) {
      Warn("layer {}: the file's activation is {}, the checkpoint's {}", info.layer,
           Name(info.activation), Name(source.activation));
    }
    for (const Matrix m : kMatrices) {
      const auto& matrix = info.matrices[m];
      if (!matrix) continue;
      if (matrix->format != matrix->requested) {
        Warn("layer {}: {} is {}, but {} was requested", info.layer, Name(m), Name(matrix->format),
             Name(matrix->requested));
      }
      if (matrix->method != matrix->requested_method) {
        Warn("layer {}: {} was quantized by {}, but {} was requested", info.layer, Name(m),
             matrix->method, matrix->requested_method);
      }
    }
  }

  Expected<std::vector<float>> Inputs(const LayerInfo& info) {
    auto inputs = calibration_.Inputs(info.layer, info.d_model);
    if (inputs && !*inputs) {
      Warn("layer {}: {} has no inputs for it; its figures are from RANDOM INPUTS", info.layer,
           calibration_.source());
      inputs = Calibration::Random(calibration_.tokens(), kFallbackSeed)
                   .Inputs(info.layer, info.d_model);
    }
    if (!inputs) return std::unexpected(std::move(inputs).error());
    return **std::move(inputs);
  }

  // What the backend makes of the inputs.
  Expected<std::vector<float>> Forward(size_t layer, MatrixView<const float> x) {
    SLUICE_ASSIGN(const Ffn ffn,
                  model_.Layer(layer, {.backend = options_.backend, .pool = options_.pool}));
    NoteBackend(ffn.Describe());
    SLUICE_ASSIGN(Workspace workspace, ffn.Plan(x.rows));
    std::vector<float> y(x.rows * x.cols);
    SLUICE_TRY(ffn.Forward(x, {y.data(), x.rows, x.cols}, workspace));
    return y;
  }

  // Layers of different formats may run on different instruction sets: each is named once.
  void NoteBackend(std::string description) {
    if (std::ranges::contains(backends_, description)) return;
    report_.backend += (backends_.empty() ? "" : "; ") + description;
    backends_.push_back(std::move(description));
  }

  void AddTotals() {
    const FfnTotals totals = Account(model_.layers());
    report_.totals.bits_per_weight = totals.bits_per_weight();
    report_.totals.ffn_bytes = totals.bytes;
    for (const LayerReport& layer : report_.layers) {
      const double error = layer.output.relative_l2;
      report_.totals.relative_l2_mean += error / static_cast<double>(report_.layers.size());
      report_.totals.relative_l2_max = MaxOrNan(report_.totals.relative_l2_max, error);
    }
  }

  const Checkpoint& checkpoint_;
  const Model& model_;
  const Calibration& calibration_;
  const ReportOptions& options_;
  std::vector<std::string> backends_;
  ModelReport report_;
};

}  // namespace

Expected<ModelReport> BuildReport(const Checkpoint& checkpoint, const Model& model,
                                  const Calibration& calibration, const ReportOptions& options) {
  return ReportBuilder(checkpoint, model, calibration, options).Build();
}

}  // namespace sluice
