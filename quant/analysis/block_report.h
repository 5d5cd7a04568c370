// The error of quantized blocks against FP32: the data behind every form of the report.
#ifndef SLUICE_QUANT_ANALYSIS_BLOCK_REPORT_H_
#define SLUICE_QUANT_ANALYSIS_BLOCK_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quant/analysis/activation_peaks.h"
#include "quant/analysis/calibration.h"
#include "quant/analysis/error_shares.h"
#include "quant/analysis/evaluate.h"
#include "quant/analysis/finding.h"
#include "quant/analysis/histogram.h"
#include "quant/analysis/metrics.h"
#include "quant/analysis/source_report.h"
#include "quant/checkpoint/checkpoint.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/model.h"

namespace sluice {

// Field names and meanings are those of the JSON report, schema "sluice.report/1". What is not
// finite (the SQNR of an exact result) stays so here and becomes null in JSON.
struct MatrixReport {
  WeightFormat format;
  WeightFormat requested;
  std::string method = {};  // as in MatrixInfo; empty: the file does not say
  std::string requested_method = {};
  size_t rows = 0;  // out
  size_t cols = 0;  // in
  double bits_per_weight = 0;
  double weight_relative_rmse = 0;
  double weight_max_abs_error = 0;
  uint64_t zero_blocks = 0;  // blocks, or rows, with scale 0
  WeightHistogram histogram = {};
};

// relative_l2 of the block in which only that one thing is quantized, all else in double. Weights
// are those of the packed file; activations are quantized as the file says and the highway and
// reference backends do, and only for the matrices that take quantized ones. `all` is what the
// backend really computed, the same figure as output.relative_l2.
struct Attribution {
  PerMatrix<std::optional<double>> matrices;  // gate is empty in an ungated block
  double input_activations = 0;
  double hidden_activations = 0;
  double all = 0;
};

// The hidden vector is a product, a ⊙ u with a = act(g), so where gate and up are both quantized,
// their errors multiply: â⊙û − a⊙u = Δa⊙u + a⊙Δu + Δa⊙Δu. The first two terms are what attribution
// has for gate and for up. All are relative L2 errors of the block's output, with no other part
// quantized.
struct GateUpInteraction {
  double together = 0;  // of gate and up
  double product = 0;   // of the third term alone
  // Of the output errors that the first two terms make: 0 where they are independent and add as
  // squares, 1 where they add, −1 where one makes up for the other.
  double cosine = 0;
};

struct LayerReport {
  size_t layer = 0;
  size_t tokens = 0;
  ActivationFormat input_activations = ActivationFormat::kFloat;
  ActivationFormat hidden_activations = ActivationFormat::kFloat;
  PerMatrix<std::optional<MatrixReport>> matrices;
  OutputReport output;
  Attribution attribution;
  std::optional<GateUpInteraction> interaction;  // empty in an ungated block
  std::vector<TokenShare> worst_tokens;          // kNamedTokens at most
  std::vector<NeuronShare> worst_neurons;        // kNamedNeurons at most
  std::vector<ActivationPeak> peaks;             // kNamedPeaks at most for each site
  std::optional<SuperWeight> super_weight;
};
inline constexpr size_t kNamedTokens = 5;
inline constexpr size_t kNamedNeurons = 5;
inline constexpr size_t kNamedPeaks = 3;

// What the model's predictions lost with one packed file, as `sluice eval` measured it.
struct ModelLoss {
  std::string source;  // of the tokens
  size_t tokens = 0;
  size_t context = 0;
  double fp32_perplexity = 0;
  FileEvaluation file;
};

struct ReportTotals {
  double bits_per_weight = 0;
  uint64_t ffn_bytes = 0;
  double relative_l2_mean = 0;
  double relative_l2_max = 0;
};

struct ModelReport {
  std::string model;               // path of the checkpoint
  SourceReport source;             // how the checkpoint stores what was quantized
  std::string file;                // path of the packed file
  std::string calibration_source;  // a path, or "random"
  size_t calibration_tokens = 0;   // the most that any layer has
  std::string cpu;                 // its maker's name for it
  std::string backend;             // name and instruction sets
  std::vector<LayerReport> layers;
  ReportTotals totals;
  std::optional<ModelLoss> loss;  // BuildReport leaves it empty
  std::vector<Finding> findings;  // errors, then warnings, then information; by layer
  std::vector<std::string> warnings;
};

struct ReportOptions {
  std::string backend = "highway";
  ThreadPool* pool = nullptr;
  // Called after each layer with (layers done, layers in all).
  std::function<void(size_t, size_t)> progress;
};

// Compares each block of `model` with the checkpoint's, on the calibration inputs of its layer: y
// in double from the unquantized weights with the checkpoint's activation, ŷ from Ffn::Forward. A
// layer without calibration is judged on random inputs, as many as the others have. One matrix of
// the checkpoint is in memory at a time, besides about eleven times tokens · d_ff values in double.
//
// Warnings: what findings call errors or warnings; random inputs; a layer without calibration; an
// activation that differs from the checkpoint's; a matrix whose format is not the requested one, or
// that is all zero; blocks of weights that became zeros; outputs that are not finite; a backend
// with its own activation format. Errors: shapes that differ, a layer that the checkpoint lacks,
// calibration of the wrong width, a block that the backend cannot run.
Expected<ModelReport> BuildReport(const Checkpoint& checkpoint, const Model& model,
                                  const Calibration& calibration, const ReportOptions& options);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_BLOCK_REPORT_H_
