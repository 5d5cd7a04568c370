#include "quant/quantizer/fit_block.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <utility>

#include "quant/decoder/float_block.h"
#include "quant/linalg/dense.h"
#include "quant/linalg/matrix_product.h"
#include "quant/quantizer/seen_activations.h"
#include "src/base/status.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

constexpr size_t kHeldOutPart = 16;
constexpr size_t kRowGrain = 64;

// A view of the first rows · cols of `storage`, which grows if it must.
MatrixView<float> Room(std::vector<float>& storage, size_t rows, size_t cols) {
  if (storage.size() < rows * cols) storage.resize(rows * cols);
  return {storage.data(), rows, cols};
}

void Copy(MatrixView<const float> from, MatrixView<float> to) {
  for (size_t r = 0; r < from.rows; ++r) std::ranges::copy(from.row(r), to.row(r).begin());
}

// out = a − b.
void Subtract(MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> out) {
  for (size_t r = 0; r < a.rows; ++r) {
    std::ranges::transform(a.row(r), b.row(r), out.row(r).begin(), std::minus());
  }
}

// Row t times gains[t]; no gains are ones.
void ScaleRows(std::span<const float> gains, MatrixView<float> m) {
  for (size_t r = 0; r < gains.size(); ++r) {
    for (float& v : m.row(r)) v *= gains[r];
  }
}

double SquareSum(MatrixView<const float> m) {
  double sum = 0;
  for (size_t r = 0; r < m.rows; ++r) {
    for (const float v : m.row(r)) sum += static_cast<double>(v) * v;
  }
  return sum;
}

// Calls add(moments) for each that tokens of this purpose belong to.
template <class Pair, class Fn>
void ForPurpose(Purpose purpose, Pair& moments, Fn add) {
  if (purpose != Purpose::kHeldOut) add(moments.fit);
  if (purpose != Purpose::kFit) add(moments.held_out);
}

// Calls use(rows, purpose) for runs of tokens of one purpose.
template <class Fn>
void ForRuns(MatrixView<const float> x, Fn use) {
  for (size_t begin = 0; begin < x.rows;) {
    const Purpose purpose = PurposeOf(begin, x.rows);
    size_t end = begin + 1;
    while (end < x.rows && end - begin < BlockFitter::kMaxTokens &&
           PurposeOf(end, x.rows) == purpose) {
      ++end;
    }
    use(x.Rows(begin, end - begin), purpose);
    begin = end;
  }
}

// Those that rescaling is chosen by.
std::vector<float> SampleRows(MatrixView<const float> x, Purpose purpose) {
  const auto purpose_of = [&](size_t token) { return PurposeOf(token, x.rows); };
  std::vector<float> rows;
  for (const size_t t : SampleTokens(x.rows, kRescaleTokens, purpose, purpose_of)) {
    rows.insert(rows.end(), x.row(t).begin(), x.row(t).end());
  }
  return rows;
}

}  // namespace

Purpose PurposeOf(size_t token, size_t count) {
  if (count < kHeldOutPart) return Purpose::kBoth;
  const size_t piece = std::clamp<size_t>(count / (4 * kHeldOutPart), 1, 64);
  return token / piece % kHeldOutPart == kHeldOutPart - 1 ? Purpose::kHeldOut : Purpose::kFit;
}

std::vector<size_t> SampleTokens(size_t tokens, size_t count, Purpose purpose,
                                 const std::function<Purpose(size_t)>& purpose_of) {
  std::vector<size_t> all;
  for (size_t t = 0; t < tokens; ++t) {
    const Purpose has = purpose_of(t);
    if (has == purpose || has == Purpose::kBoth) all.push_back(t);
  }
  const size_t taken = std::min(count, all.size());
  std::vector<size_t> sample;
  sample.reserve(taken);
  for (size_t i = 0; i < taken; ++i) sample.push_back(all[i * all.size() / taken]);
  return sample;
}

BlockFitter::BlockFitter(const FfnWeights& weights, const PerMatrix<WeightFormat>& formats,
                         const BlockActivations& activations, const FitOptions& options,
                         const ThreadPool* pool)
    : weights_(weights),
      formats_(formats),
      activations_(activations),
      options_(options),
      pool_(pool) {
  const LinearWeights& up = weights.matrices[Matrix::kUp];
  inputs_ = {LossMoments::Zero(up.cols), LossMoments::Zero(up.cols)};
  drift_ = LossMoments::Zero(up.cols);
  rounded_.layer = weights.layer;
  rounded_.activation = weights.activation;
  rounded_.gated = weights.gated;
}

void BlockFitter::AddInputs(MatrixView<const float> x, MatrixView<const float> wanted,
                            Purpose purpose, std::span<const float> gains) {
  assert(x.rows <= kMaxTokens && (gains.empty() || gains.size() == x.rows));
  const MatrixView<float> seen = Room(x_, x.rows, x.cols);
  Copy(x, seen);
  RoundActivations(seen, activations_.input, pool_);
  const MatrixView<float> difference = Room(difference_, x.rows, x.cols);
  Subtract(wanted, seen, difference);
  ScaleRows(gains, seen);
  ScaleRows(gains, difference);
  ForPurpose(purpose, inputs_, [&](LossMoments& moments) {
    AddSecondMoments(seen, moments, pool_);
    AddCrossMoments(difference, seen, moments.shift, pool_);
  });
  if (purpose != Purpose::kFit) AddSecondMoments(difference, drift_, pool_);
}

// The inputs' moments as those of gate or up: with y = W·wanted, R = −W·Σ (wanted − x)·xᵀ.
void BlockFitter::Moved(Matrix m, const LossMoments& inputs, LossMoments& moments) const {
  const MatrixView<const float> w = Exact(m).view();
  moments = inputs;
  moments.shift.assign(w.rows * w.cols, 0);
  ParallelFor(pool_, w.rows, kRowGrain, [&](size_t begin, size_t end) {
    Multiply(-1, w.Rows(begin, end - begin), Transpose::kNo, {inputs.shift.data(), w.cols, w.cols},
             Transpose::kNo, 0, {moments.shift.data() + begin * w.cols, end - begin, w.cols});
  });
}

Status BlockFitter::Rescale(const RescaleSample& sample) {
  if (!options_.rescale || options_.method == Method::kRtn ||
      !CanRescale(weights_.gated, formats_) || sample.fit.rows == 0 || sample.held_out.rows == 0) {
    return {};
  }
  SLUICE_ASSIGN(fit_.rescale, ChooseRescale(weights_, formats_, activations_, sample, pool_));
  if (fit_.rescale.empty()) return {};
  for (const Matrix m : {Matrix::kUp, Matrix::kDown}) {
    scaled_.matrices[m] = weights_.matrices[m];
    ApplyRescale(m, fit_.rescale, scaled_.matrices[m]);
  }
  return {};
}

Status BlockFitter::FitInput() {
  for (LossMoments* moments : {&inputs_.fit, &inputs_.held_out, &drift_}) Mirror(*moments);
  for (const Matrix m : {Matrix::kGate, Matrix::kUp}) {
    if (m == Matrix::kGate && !weights_.gated) continue;
    const MatrixView<const float> w = Exact(m).view();
    Both moments;
    Moved(m, inputs_.fit, moments.fit);
    Moved(m, inputs_.held_out, moments.held_out);
    const auto tokens = static_cast<double>(drift_.tokens);
    moments.held_out.rest = tokens * MeanLoss(w, drift_, pool_);
    SLUICE_TRY(FitOne(m, moments.fit, moments.held_out));
  }
  inputs_ = {};
  drift_ = {};
  const size_t d_ff = weights_.matrices[Matrix::kUp].rows;
  hidden_ = {LossMoments::Zero(d_ff), LossMoments::Zero(d_ff)};
  return {};
}

MatrixView<float> BlockFitter::RoundedHidden(MatrixView<const float> x) {
  assert(x.rows <= kMaxTokens);
  const MatrixView<float> seen = Room(x_, x.rows, x.cols);
  Copy(x, seen);
  RoundActivations(seen, activations_.input, pool_);
  const size_t d_ff = weights_.matrices[Matrix::kUp].rows;
  const MatrixView<float> hidden = Room(hidden_rows_, x.rows, d_ff);
  BlockHidden(rounded_, seen, hidden, Room(scratch_, x.rows, d_ff), pool_);
  RoundActivations(hidden, activations_.hidden, pool_);
  return hidden;
}

void BlockFitter::AddHidden(MatrixView<const float> x, MatrixView<const float> y, Purpose purpose,
                            std::span<const float> gains) {
  const MatrixView<float> hidden = RoundedHidden(x);
  const MatrixView<float> miss = Room(y_, y.rows, y.cols);
  BlockOutput(fit_.rescale.empty() ? weights_ : scaled_, hidden, miss, pool_);
  Subtract(miss, y, miss);
  ScaleRows(gains, hidden);
  ScaleRows(gains, miss);
  ForPurpose(purpose, hidden_, [&](LossMoments& moments) {
    AddSecondMoments(hidden, moments, pool_);
    AddCrossMoments(miss, hidden, moments.shift, pool_);
    moments.rest += SquareSum(miss);
    moments.target += SquareSum(y);
  });
}

Status BlockFitter::FitHidden() {
  Mirror(hidden_.fit);
  Mirror(hidden_.held_out);
  SLUICE_TRY(FitOne(Matrix::kDown, hidden_.fit, hidden_.held_out));
  hidden_ = {};
  return {};
}

Status BlockFitter::FitOne(Matrix m, const LossMoments& fit, const LossMoments& held_out) {
  const LinearWeights& weights = Exact(m);
  auto result = FitMatrix(weights.view(), formats_[m], fit, held_out, options_, pool_);
  if (!result) return FailIn(Name(m), result.error());
  LinearWeights& rounded = rounded_.matrices[m];
  rounded.rows = weights.rows;
  rounded.cols = weights.cols;
  rounded.bias = weights.bias;
  rounded.weights = Dequantize(result->matrix);
  fit_.matrices[m] = *std::move(result);
  return {};
}

void BlockFitter::Forward(MatrixView<const float> x, MatrixView<float> y) {
  BlockOutput(rounded_, RoundedHidden(x), y, pool_);
}

Expected<BlockFit> FitCalibrated(const FfnWeights& weights, const PerMatrix<WeightFormat>& formats,
                                 const BlockActivations& activations, MatrixView<const float> x,
                                 const FitOptions& options, const ThreadPool* pool) {
  BlockFitter fitter(weights, formats, activations, options, pool);
  ForRuns(x, [&](MatrixView<const float> rows, Purpose purpose) {
    fitter.AddInputs(rows, rows, purpose);
  });
  const auto fit = SampleRows(x, Purpose::kFit);
  const auto held_out = SampleRows(x, Purpose::kHeldOut);
  SLUICE_TRY(fitter.Rescale({{fit.data(), fit.size() / x.cols, x.cols},
                             {held_out.data(), held_out.size() / x.cols, x.cols},
                             {}}));
  SLUICE_TRY(fitter.FitInput());
  std::vector<float> hidden, scratch, y;
  ForRuns(x, [&](MatrixView<const float> rows, Purpose purpose) {
    const size_t d_ff = weights.matrices[Matrix::kUp].rows;
    const MatrixView<float> exact = Room(hidden, rows.rows, d_ff);
    const MatrixView<float> output = Room(y, rows.rows, x.cols);
    BlockHidden(weights, rows, exact, Room(scratch, rows.rows, d_ff), pool);
    BlockOutput(weights, exact, output, pool);
    fitter.AddHidden(rows, output, purpose);
  });
  SLUICE_TRY(fitter.FitHidden());
  return std::move(fitter).Take();
}

}  // namespace sluice
