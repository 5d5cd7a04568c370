// A block fitted in order, and how much its tokens count.
#include "quant/quantizer/fit_block.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/correlated.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using test::CorrelatedInputs;
using test::FloatMatrix;
using test::NormalMatrix;

constexpr WeightFormat kInt4Block = {WeightType::kInt4, 32};
constexpr size_t kModel = 40;
constexpr size_t kHidden = 70;
constexpr size_t kTokens = 300;

class FitBlock : public ::testing::Test {
 protected:
  FitBlock() {
    weights_.gated = true;
    weights_.activation = Activation::kSilu;
    for (const Matrix m : kMatrices) {
      LinearWeights& w = weights_.matrices[m];
      w.rows = m == Matrix::kDown ? kModel : kHidden;
      w.cols = m == Matrix::kDown ? kHidden : kModel;
      w.weights = NormalMatrix(random_, w.rows, w.cols, 0.3f).values;
    }
  }

  PerMatrix<std::optional<MatrixFit>> Fit(const FloatMatrix& x, const FloatMatrix& y,
                                          std::span<const float> gains) {
    const PerMatrix<WeightFormat> formats{{kInt4Block, kInt4Block, kInt4Block}};
    BlockFitter fitter(weights_, formats, {ActivationFormat::kBlock, ActivationFormat::kBlock}, {},
                       nullptr);
    fitter.AddInputs(x.view(), x.view(), Purpose::kBoth, gains);
    EXPECT_TRUE(fitter.FitInput());
    fitter.AddHidden(x.view(), y.view(), Purpose::kBoth, gains);
    EXPECT_TRUE(fitter.FitHidden());
    return std::move(fitter).Take().matrices;
  }

  test::Random random_;
  FfnWeights weights_;
  FloatMatrix x_ = CorrelatedInputs(random_, kModel).Draw(kTokens);
  FloatMatrix y_ = NormalMatrix(random_, kTokens, kModel);
};

TEST_F(FitBlock, GainsScaleTheLossByTheirSquare) {
  const auto one = Fit(x_, y_, {});
  const auto two = Fit(x_, y_, std::vector<float>(kTokens, 2));
  for (const Matrix m : kMatrices) {
    EXPECT_EQ(one[m]->matrix.integers, two[m]->matrix.integers) << Name(m);
    EXPECT_EQ(one[m]->matrix.scales, two[m]->matrix.scales) << Name(m);
    EXPECT_NEAR(two[m]->loss, 4 * one[m]->loss, 1e-6 * two[m]->loss) << Name(m);
  }
}

TEST_F(FitBlock, TokensWithoutGainDoNotCount) {
  std::vector<float> gains(kTokens, 1);
  FloatMatrix x = x_, y = y_;
  for (size_t t = 0; t < kTokens; t += 3) {
    gains[t] = 0;
    for (size_t c = 0; c < kModel; ++c) x(t, c) = y(t, c) = 0;
  }
  const auto without = Fit(x_, y_, gains);
  const auto zero = Fit(x, y, {});
  const auto all = Fit(x_, y_, {});
  for (const Matrix m : kMatrices) {
    EXPECT_EQ(without[m]->matrix.integers, zero[m]->matrix.integers) << Name(m);
    EXPECT_NE(without[m]->matrix.integers, all[m]->matrix.integers) << Name(m);
  }
}

}  // namespace
}  // namespace sluice
