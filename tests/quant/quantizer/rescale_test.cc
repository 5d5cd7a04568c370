// Up and down rescaled against each other: the same function, a smaller error.
#include "quant/quantizer/rescale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "quant/decoder/float_block.h"
#include "quant/quantizer/fit_block.h"
#include "quant/quantizer/quantizer.h"
#include "src/base/half.h"
#include "tests/support/correlated.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using test::CorrelatedInputs;
using test::FloatMatrix;
using test::NormalMatrix;
using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr WeightFormat kQ4 = {WeightType::kInt4, 32};
constexpr WeightFormat kC8 = {WeightType::kInt8, 0};
constexpr WeightFormat kF32 = {WeightType::kF32, 0};
constexpr BlockActivations kBlocks = {ActivationFormat::kBlock, ActivationFormat::kBlock};
constexpr size_t kModel = 40;
constexpr size_t kHidden = 70;

float Rms(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return static_cast<float>(std::sqrt(sum / static_cast<double>(values.size())));
}

class RescaleTest : public ::testing::Test {
 protected:
  // Neurons write with very different strength, as real ones do.
  RescaleTest() {
    for (const Matrix m : kMatrices) {
      LinearWeights& w = weights_.matrices[m];
      w.rows = m == Matrix::kDown ? kModel : kHidden;
      w.cols = m == Matrix::kDown ? kHidden : kModel;
      w.weights = NormalMatrix(random_, w.rows, w.cols, 0.3f).values;
    }
    weights_.matrices[Matrix::kUp].bias = NormalMatrix(random_, 1, kHidden).values;
    for (size_t j = 0; j < kHidden; ++j) {
      const float strength = std::exp(random_.Normal(1));
      for (size_t r = 0; r < kModel; ++r) Down(r, j) *= strength;
    }
  }

  float& Down(size_t r, size_t j) {
    return weights_.matrices[Matrix::kDown].weights[r * kHidden + j];
  }

  std::vector<float> Column(size_t j) {
    std::vector<float> column;
    column.reserve(kModel);
    for (size_t r = 0; r < kModel; ++r) column.push_back(Down(r, j));
    return column;
  }

  FloatMatrix Output(const FfnWeights& weights, const FloatMatrix& x) const {
    FloatMatrix hidden(x.rows, kHidden), scratch = hidden, y(x.rows, kModel);
    BlockHidden(weights, x.view(), {hidden.values.data(), x.rows, kHidden},
                {scratch.values.data(), x.rows, kHidden}, nullptr);
    BlockOutput(weights, hidden.view(), {y.values.data(), x.rows, kModel}, nullptr);
    return y;
  }

  // Of the block as it was fitted, on inputs that the fit did not see.
  double Error(const BlockFit& fit, const FloatMatrix& x) const {
    FfnWeights rounded = weights_;
    for (const Matrix m : kMatrices) {
      ApplyRescale(m, fit.rescale, rounded.matrices[m]);  // for the bias
      rounded.matrices[m].weights = Dequantize(fit.matrices[m]->matrix);
    }
    FloatMatrix difference = Output(rounded, x);
    const FloatMatrix y = Output(weights_, x);
    for (size_t i = 0; i < y.values.size(); ++i) difference.values[i] -= y.values[i];
    return Rms(difference.values) / Rms(y.values);
  }

  BlockFit Fit(Method method, bool rescale, const FloatMatrix& x) const {
    return FitCalibrated(weights_, {{kQ4, kQ4, kQ4}}, kBlocks, x.view(),
                         {.method = method, .rescale = rescale}, nullptr)
        .value();
  }

  test::Random random_;
  FfnWeights weights_{.layer = 0, .activation = Activation::kSilu, .gated = true, .matrices = {}};
  CorrelatedInputs inputs_{random_, kModel};
};

TEST_F(RescaleTest, TheFunctionStaysTheSame) {
  std::vector<float> factors;
  factors.reserve(kHidden);
  for (size_t j = 0; j < kHidden; ++j) {
    factors.push_back(ToFloat(ToBf16(std::exp2(random_.Normal(2)))));
  }
  FfnWeights scaled = weights_;
  for (const Matrix m : kMatrices) ApplyRescale(m, factors, scaled.matrices[m]);
  EXPECT_EQ(scaled.matrices[Matrix::kGate].weights, weights_.matrices[Matrix::kGate].weights);
  EXPECT_NE(scaled.matrices[Matrix::kUp].weights, weights_.matrices[Matrix::kUp].weights);
  const FloatMatrix x = inputs_.Draw(20);
  const FloatMatrix y = Output(weights_, x), again = Output(scaled, x);
  for (size_t i = 0; i < y.values.size(); ++i) {
    EXPECT_NEAR(again.values[i], y.values[i], 1e-5f * Rms(y.values));
  }
  for (const Matrix m : kMatrices) {
    const LinearWeights& w = scaled.matrices[m];
    const auto restored = Restore(m, factors, QuantizeRtn(w.view(), kF32, nullptr).value());
    for (size_t i = 0; i < restored.size(); ++i) {
      const float exact = weights_.matrices[m].weights[i];
      ASSERT_NEAR(restored[i], exact, 2e-7f * std::fabs(exact)) << Name(m);
      ASSERT_NEAR(w.weights[i], exact * RescaleAt(m, factors, i / w.cols, i % w.cols),
                  2e-7f * std::fabs(w.weights[i]));
    }
  }
}

TEST_F(RescaleTest, ARuleMakesColumnsOrHiddenValuesAlikeWithinTheirGroup) {
  const auto down = weights_.matrices[Matrix::kDown].view();
  std::vector<float> energy(kHidden);
  for (float& e : energy) e = std::exp(random_.Normal(1));
  const auto by_column = RescaleFactors(down, energy, 32, {.hidden = 0, .column = 1});
  const auto by_hidden = RescaleFactors(down, energy, 32, {.hidden = 1, .column = 0});
  for (size_t j = 0; j < kHidden; ++j) {
    const size_t first = j / 32 * 32;
    EXPECT_NEAR(Rms(Column(j)) / by_column[j], Rms(Column(first)) / by_column[first],
                0.01f * Rms(Column(first)) / by_column[first]);
    EXPECT_NEAR(std::sqrt(energy[j]) * by_hidden[j], std::sqrt(energy[first]) * by_hidden[first],
                0.01f * std::sqrt(energy[first]) * by_hidden[first]);
    EXPECT_EQ(ToFloat(ToBf16(by_column[j])), by_column[j]);
  }
  EXPECT_NE(RescaleFactors(down, energy, kHidden, {0, 1}), by_column);  // one group of all
}

TEST_F(RescaleTest, DeadNeuronsMoveNoOthers) {
  for (size_t r = 0; r < kModel; ++r) Down(r, 5) = 0;
  std::vector<float> energy(kHidden, 1);
  energy[7] = 0;
  const auto down = weights_.matrices[Matrix::kDown].view();
  for (const float f : RescaleFactors(down, energy, 32, {0.5, 0.5})) {
    EXPECT_GE(f, 1.0f / 64);
    EXPECT_LE(f, 64);
  }
  const std::vector<float> zero(kModel * 3), none(3);
  EXPECT_THAT(RescaleFactors({zero.data(), kModel, 3}, none, 32, {0.5, 0.5}), Each(1.0f));
}

TEST_F(RescaleTest, LowersTheErrorOnOtherTokens) {
  const FloatMatrix x = inputs_.Draw(600), other = inputs_.Draw(300);
  for (const Method method : {Method::kMse, Method::kGptq}) {
    const BlockFit with = Fit(method, true, x), without = Fit(method, false, x);
    EXPECT_THAT(with.rescale, SizeIs(kHidden));
    EXPECT_THAT(without.rescale, IsEmpty());
    EXPECT_LT(Error(with, other), 0.97 * Error(without, other)) << Name(method);
  }
}

TEST_F(RescaleTest, RtnLooksAtTheWeightsOnly) {
  const FloatMatrix x = inputs_.Draw(100);
  const BlockFit fit = Fit(Method::kRtn, true, x);
  EXPECT_THAT(fit.rescale, IsEmpty());
  const auto& w = weights_.matrices[Matrix::kDown];
  EXPECT_EQ(fit.matrices[Matrix::kDown]->matrix.integers,
            QuantizeRtn(w.view(), kQ4, nullptr)->integers);
}

// Where rounding costs nothing, rescaling could only harm.
TEST_F(RescaleTest, WeightsThatAreOnTheGridStayThere) {
  const QuantizedMatrix grid =
      QuantizeRtn(weights_.matrices[Matrix::kDown].view(), kQ4, nullptr).value();
  weights_.matrices[Matrix::kDown].weights = Dequantize(grid);
  const FloatMatrix x = inputs_.Draw(200);
  const RescaleSample sample = {x.view(), x.view(), {}};
  EXPECT_THAT(ChooseRescale(weights_, {{kQ4, kQ4, kQ4}}, kBlocks, sample, nullptr).value(),
              IsEmpty());
}

TEST_F(RescaleTest, TokensWithoutGainDoNotCount) {
  const FloatMatrix x = inputs_.Draw(200);
  const std::vector<float> none(200, 0);
  const auto choose = [&](std::span<const float> gains) {
    return ChooseRescale(weights_, {{kQ4, kQ4, kQ4}}, kBlocks, {x.view(), x.view(), gains}, nullptr)
        .value();
  };
  EXPECT_THAT(choose({}), SizeIs(kHidden));
  EXPECT_THAT(choose(none), IsEmpty());
}

TEST_F(RescaleTest, OnlyGatedBlocksWithQuantizedUpAndDown) {
  EXPECT_TRUE(CanRescale(true, {{kF32, kQ4, kC8}}));
  EXPECT_FALSE(CanRescale(true, {{kQ4, kF32, kC8}}));
  EXPECT_FALSE(CanRescale(true, {{kQ4, kQ4, kF32}}));
  EXPECT_FALSE(CanRescale(false, {{kQ4, kQ4, kQ4}}));
}

TEST(SampleTokens, AreEvenlySpacedAndOfOnePurpose) {
  const auto every_fourth = [](size_t t) { return t % 4 == 3 ? Purpose::kHeldOut : Purpose::kFit; };
  EXPECT_EQ(SampleTokens(40, 5, Purpose::kHeldOut, every_fourth),
            (std::vector<size_t>{3, 11, 19, 27, 35}));
  EXPECT_THAT(SampleTokens(40, 100, Purpose::kFit, every_fourth), SizeIs(30));
  EXPECT_THAT(SampleTokens(3, 9, Purpose::kFit, [](size_t) { return Purpose::kBoth; }), SizeIs(3));
  EXPECT_THAT(SampleTokens(3, 9, Purpose::kHeldOut, every_fourth), IsEmpty());
}

}  // namespace
}  // namespace sluice
