#include "quant/analysis/compare_block.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "quant/analysis/layer_findings.h"
#include "quant/analysis/measure_matrix.h"
#include "quant/analysis/metrics.h"
#include "quant/analysis/reference_block.h"
#include "quant/quantizer/rescale.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// A matrix as trained and as stored.
struct MatrixPair {
  LinearWeights trained;
  std::vector<float> stored;  // dequantized, in units of the checkpoint, same shape
  bool quantized = false;

  MatrixView<const float> stored_view() const {
    return {stored.data(), trained.rows, trained.cols};
  }
};

// What gate or up make of the inputs when nothing, only their weights, only x, or both are
// quantized.
struct Projections {
  DoubleMatrix exact;
  DoubleMatrix with_weights;
  DoubleMatrix with_input;
  DoubleMatrix with_all;
};

// The hidden vector act(g) ⊙ u when nothing, only one thing before it, the weights of both, or all
// of it is quantized.
struct Hidden {
  DoubleMatrix exact;
  PerMatrix<std::optional<DoubleMatrix>> with_weights;  // of gate, of up
  std::optional<DoubleMatrix> with_both;
  DoubleMatrix with_input;
  DoubleMatrix with_all;
};

// In place of `a`, which the caller gives up.
DoubleMatrix Times(DoubleMatrix&& a, const DoubleMatrix& b) {
  a.array() *= b.array();
  return std::move(a);
}

class Comparison {
 public:
  Comparison(const ExactBlock& exact, const BlockView& packed, MatrixView<const float> x,
             const ThreadPool* pool, std::span<const float> rescale)
      : exact_(exact), packed_(packed), x_(ToDouble(x)), pool_(pool), rescale_(rescale) {}

  Status Run(MatrixView<const float> computed) {
    SLUICE_ASSIGN(Hidden hidden, Before());
    return Down(hidden, computed);
  }

  BlockComparison Take() && { return std::move(result_); }

 private:
  // Loads a matrix and notes how its weights fared.
  Expected<MatrixPair> Load(Matrix m) {
    const PackedLayout& layout = packed_.matrices[m].layout;
    MatrixPair pair;
    SLUICE_ASSIGN(pair.trained, exact_.load(m));
    if (pair.trained.rows != layout.rows || pair.trained.cols != layout.cols) {
      return Fail(ErrorCode::kInvalidArgument,
                  "{} is [{}, {}] in the checkpoint, but [{}, {}] in the packed file", Name(m),
                  pair.trained.rows, pair.trained.cols, layout.rows, layout.cols);
    }
    const QuantizedMatrix stored = Unpack(packed_.matrices[m]);
    pair.stored = Restore(m, rescale_, stored);
    pair.quantized = stored.format.quantized();

    MatrixMeasurement measured =
        MeasureMatrix(m, pair.trained.view(), stored, pair.stored, rescale_);
    result_.report.matrices[m] = measured.report;
    std::ranges::move(measured.warnings, std::back_inserter(result_.warnings));
    std::ranges::move(measured.findings, std::back_inserter(result_.findings));
    return pair;
  }

  Expected<Projections> Project(Matrix m, const DoubleMatrix& quantized_x) {
    SLUICE_ASSIGN(const MatrixPair pair, Load(m));
    const auto trained = pair.trained.view();
    Projections p;
    p.exact = Linear(x_, trained, pair.trained.bias, pool_);
    p.with_weights = Linear(x_, pair.stored_view(), pair.trained.bias, pool_);
    p.with_input =
        pair.quantized ? Linear(quantized_x, trained, pair.trained.bias, pool_) : p.exact;
    p.with_all = pair.quantized ? Linear(quantized_x, pair.stored_view(), pair.trained.bias, pool_)
                                : p.with_weights;
    return p;
  }

  // The hidden vector as down sees it: it is rounded times the factors, which down undoes.
  DoubleMatrix RoundHidden(const DoubleMatrix& hidden) const {
    if (rescale_.empty()) return QuantizeActivations(hidden, packed_.hidden, pool_);
    const Eigen::ArrayXd factors =
        Eigen::Map<const Eigen::ArrayXf>(rescale_.data(), hidden.cols()).cast<double>();
    DoubleMatrix scaled = hidden * factors.matrix().asDiagonal();
    return QuantizeActivations(scaled, packed_.hidden, pool_) *
           factors.inverse().matrix().asDiagonal();
  }

  // x ─► gate ∥ up ─► act(g) ⊙ u. These are the largest matrices here, so products go in the place
  // of factors that nobody needs any more.
  Expected<Hidden> Before() {
    const DoubleMatrix quantized_x = QuantizeActivations(x_, packed_.input, pool_);
    NoteInputs();
    Hidden hidden;
    Projections gate;
    if (exact_.gated) {
      SLUICE_ASSIGN(gate, Project(Matrix::kGate, quantized_x));
    }
    SLUICE_ASSIGN(Projections up, Project(Matrix::kUp, quantized_x));
    if (exact_.gated) NoteSwap({gate.exact, gate.with_weights, up.exact, up.with_weights});
    Projections& activated = exact_.gated ? gate : up;
    for (DoubleMatrix* p :
         {&activated.exact, &activated.with_weights, &activated.with_input, &activated.with_all}) {
      Activate(exact_.activation, *p, pool_);
    }
    if (exact_.gated) {
      hidden.with_both = gate.with_weights.cwiseProduct(up.with_weights);
      hidden.with_weights[Matrix::kGate] = Times(std::move(gate.with_weights), up.exact);
      up.with_weights = Times(std::move(up.with_weights), gate.exact);
      up.with_input = Times(std::move(up.with_input), gate.with_input);
      up.with_all = Times(std::move(up.with_all), gate.with_all);
      up.exact = Times(std::move(up.exact), gate.exact);
    }
    hidden.with_weights[Matrix::kUp] = std::move(up.with_weights);
    hidden.with_input = std::move(up.with_input);
    hidden.with_all = std::move(up.with_all);
    hidden.exact = std::move(up.exact);
    return hidden;
  }

  // Both of one thing: the projections of gate and up, before they are activated and multiplied.
  void NoteSwap(const GateAndUp& projections) {
    std::optional<Finding> swap = FindSwap(projections);
    if (!swap) return;
    // It says what the two matrices' own findings do not know.
    std::erase_if(result_.findings, [](const Finding& finding) {
      return finding.kind == FindingKind::kUnrelatedWeights;
    });
    result_.findings.push_back(*std::move(swap));
  }

  void NoteInputs() {
    std::ranges::move(FindInputSpikes(x_), std::back_inserter(result_.findings));
    AddPeaks(ActivationSite::kInput, x_);
  }

  void AddPeaks(ActivationSite site, const DoubleMatrix& values) {
    std::ranges::move(FindPeaks(site, values, kNamedPeaks),
                      std::back_inserter(result_.report.peaks));
  }

  Status Down(Hidden& hidden, MatrixView<const float> computed) {
    SLUICE_ASSIGN(const MatrixPair down, Load(Matrix::kDown));
    const auto& bias = down.trained.bias;
    const DoubleMatrix y = Linear(hidden.exact, down.trained.view(), bias, pool_);
    const auto error_with = [&](const DoubleMatrix& h, MatrixView<const float> weights) {
      return RelativeL2(View(y), View(Linear(h, weights, bias, pool_)));
    };
    Attribution& attribution = result_.report.attribution;
    GateAndUpAlone(hidden, down, y);
    attribution.matrices[Matrix::kDown] = error_with(hidden.exact, down.stored_view());
    attribution.input_activations = error_with(hidden.with_input, down.trained.view());
    if (down.quantized) {
      attribution.hidden_activations = error_with(RoundHidden(hidden.exact), down.trained.view());
    }
    Output(y, computed);
    Places(hidden, down, y, computed);
    return {};
  }

  // The errors that the weights of gate and of up make alone, and together.
  void GateAndUpAlone(const Hidden& hidden, const MatrixPair& down, const DoubleMatrix& y) {
    const auto output = [&](const DoubleMatrix& h) {
      return Linear(h, down.trained.view(), down.trained.bias, pool_);
    };
    PerMatrix<DoubleMatrix> alone;
    for (const Matrix m : {Matrix::kGate, Matrix::kUp}) {
      if (!hidden.with_weights[m]) continue;
      alone[m] = output(*hidden.with_weights[m]);
      result_.report.attribution.matrices[m] = RelativeL2(View(y), View(alone[m]));
    }
    if (!hidden.with_both) return;
    const DoubleMatrix both = output(*hidden.with_both);
    const DoubleMatrix& gate = alone[Matrix::kGate];
    const DoubleMatrix& up = alone[Matrix::kUp];
    // down is linear: what is left of the error of both is the product's.
    const DoubleMatrix product = both - gate - up + 2 * y;
    const double norms = (gate - y).norm() * (up - y).norm();
    result_.report.interaction = {
        .together = RelativeL2(View(y), View(both)),
        .product = RelativeL2(View(y), View(product)),
        .cosine = norms > 0 ? (gate - y).cwiseProduct(up - y).sum() / norms : 0};
  }

  // Tokens, neurons, activations and weights that the error comes from, and what they show.
  void Places(Hidden& hidden, const MatrixPair& down, const DoubleMatrix& y,
              MatrixView<const float> computed) {
    LayerReport& report = result_.report;
    report.worst_tokens = WorstTokens(y, computed, kNamedTokens);
    if (down.quantized) {
      hidden.with_all = RoundHidden(hidden.with_all);
    }
    const DoubleMatrix error =
        Linear(hidden.with_all, down.stored_view(), down.trained.bias, pool_) - y;
    report.worst_neurons =
        WorstNeurons({hidden.exact, down.trained.view()}, {hidden.with_all, down.stored_view()},
                     error, kNamedNeurons, pool_);
    AddPeaks(ActivationSite::kHidden, hidden.exact);
    AddPeaks(ActivationSite::kOutput, y);
    report.super_weight = FindSuperWeight(hidden.exact, y, down.trained.view(), down.stored_view());
    if (auto bad = FindNotFinite(computed)) result_.findings.push_back(*std::move(bad));
    if (auto dead = FindDeadNeurons(hidden.exact)) result_.findings.push_back(*std::move(dead));
    std::ranges::move(FindInFigures(report), std::back_inserter(result_.findings));
  }

  void Output(const DoubleMatrix& y, MatrixView<const float> computed) {
    LayerReport& report = result_.report;
    report.output = MeasureOutput(View(y), computed);
    report.attribution.all = report.output.relative_l2;
    report.tokens = computed.rows;
    report.input_activations = packed_.input;
    report.hidden_activations = packed_.hidden;
  }

  const ExactBlock& exact_;
  const BlockView& packed_;
  const DoubleMatrix x_;
  const ThreadPool* pool_;
  std::span<const float> rescale_;
  BlockComparison result_;
};

}  // namespace

Expected<BlockComparison> CompareBlock(const ExactBlock& exact, const BlockView& packed,
                                       MatrixView<const float> x, MatrixView<const float> computed,
                                       const ThreadPool* pool, std::span<const float> rescale) {
  if (exact.gated != packed.gated) {
    return Fail(ErrorCode::kInvalidArgument,
                "the block is {} in the checkpoint, but {} in the file",
                exact.gated ? "gated" : "ungated", packed.gated ? "gated" : "ungated");
  }
  Comparison comparison(exact, packed, x, pool, rescale);
  SLUICE_TRY(comparison.Run(computed));
  return std::move(comparison).Take();
}

}  // namespace sluice
