// Which part of a block the error comes from.
#include "quant/analysis/compare_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/base/half.h"
#include "tests/quant/analysis/study.h"
#include "tests/support/double_block.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using test::Study;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr WeightFormat kF32 = {WeightType::kF32, 0};
constexpr WeightFormat kBf16 = {WeightType::kBf16, 0};
constexpr WeightFormat kQ4 = {WeightType::kInt4, 32};
constexpr WeightFormat kQ8 = {WeightType::kInt8, 32};
constexpr WeightFormat kC8 = {WeightType::kInt8, 0};

// What says that the file is not this checkpoint's. Of random weights, a single neuron can make
// most of the error by chance, and is rightly named.
std::vector<Finding> Faults(const BlockComparison& comparison) {
  std::vector<Finding> faults;
  std::ranges::copy_if(comparison.findings, std::back_inserter(faults),
                       [](const Finding& finding) { return finding.severity != Severity::kInfo; });
  return faults;
}

// √Σ of independent errors.
double Together(std::initializer_list<double> errors) {
  double sum = 0;
  for (const double e : errors) sum += e * e;
  return std::sqrt(sum);
}

TEST(CompareBlock, AnUnquantizedBlockHasNoErrorAnywhere) {
  test::Random random;
  for (const bool gated : {true, false}) {
    Study study(random, 40, 72, gated, /*biases=*/true);
    study.Quantize(test::AllOf(kF32));
    const BlockComparison comparison = study.Compare();
    const Attribution& a = comparison.report.attribution;
    EXPECT_EQ(a.matrices[Matrix::kGate].has_value(), gated);
    for (const auto& matrix : a.matrices.items) EXPECT_EQ(matrix.value_or(0), 0);
    EXPECT_EQ(a.input_activations, 0);
    EXPECT_EQ(a.hidden_activations, 0);
    EXPECT_LE(a.all, 1e-6);
    EXPECT_GT(a.all, 0);  // the block is computed in f32
    EXPECT_GT(comparison.report.output.sqnr_db, 120);
    EXPECT_THAT(comparison.warnings, IsEmpty());
  }
}

// The reference is the formula itself, with every activation, gated or not.
TEST(CompareBlock, MeasuresAgainstTheTrainedWeightsInDouble) {
  test::Random random;
  for (const Activation activation : kActivations) {
    for (const bool gated : {true, false}) {
      Study study(random, 33, 50, gated, /*biases=*/true);
      study.trained.activation = activation;
      study.Quantize(test::AllOf(kQ4));
      const LayerReport report = study.Compare().report;
      const std::vector<double> y = study.Double().Forward(study.x);
      EXPECT_NEAR(report.output.relative_l2, test::RelativeL2(y, study.computed), 1e-12)
          << Name(activation) << (gated ? " gated" : "");
      EXPECT_EQ(report.attribution.all, report.output.relative_l2);
    }
  }
}

// Each of the three in turn, and only that one. bf16 takes unquantized activations, so the real
// block has no other error than that matrix's (and f32's).
TEST(Attribution, TheOnlyRoundedMatrixHasAllOfTheError) {
  test::Random random;
  for (const bool gated : {true, false}) {
    for (const Matrix one : kMatrices) {
      if (one == Matrix::kGate && !gated) continue;
      Study study(random, 64, 96, gated);
      PerMatrix<WeightFormat> formats = test::AllOf(kF32);
      formats[one] = kBf16;
      study.Quantize(formats);
      const Attribution a = study.Attribute();
      for (const Matrix m : kMatrices) {
        if (!a.matrices[m]) continue;
        if (m == one) {
          EXPECT_NEAR(*a.matrices[m] / a.all, 1, 0.01) << Name(m);
        } else {
          EXPECT_EQ(*a.matrices[m], 0) << Name(m);
        }
      }
      EXPECT_GT(a.all, 1e-4);
    }
  }
}

TEST(Attribution, AQuantizedDownLeavesGateUpAndInputAlone) {
  test::Random random;
  Study study(random, 64, 256);
  study.Quantize({{kF32, kF32, kQ4}});
  const Attribution a = study.Attribute();
  EXPECT_EQ(a.matrices[Matrix::kGate], 0);
  EXPECT_EQ(a.matrices[Matrix::kUp], 0);
  EXPECT_EQ(a.input_activations, 0);
  EXPECT_GT(a.hidden_activations, 1e-4);
  EXPECT_GT(*a.matrices[Matrix::kDown], 5 * a.hidden_activations);  // 4 bits against 8
  EXPECT_NEAR(Together({*a.matrices[Matrix::kDown], a.hidden_activations}) / a.all, 1, 0.1);
}

// Quantizing gate alone, or up alone, in the same block: the figures must not be each other's.
TEST(Attribution, GateAndUpAreToldApart) {
  test::Random random;
  Study study(random, 64, 96);
  study.Quantize({{kQ4, kQ8, kF32}});
  const Attribution a = study.Attribute();
  EXPECT_GT(*a.matrices[Matrix::kGate], 5 * *a.matrices[Matrix::kUp]);
  EXPECT_EQ(a.matrices[Matrix::kDown], 0);
  study.Quantize({{kQ8, kQ4, kF32}});
  const Attribution b = study.Attribute();
  EXPECT_GT(*b.matrices[Matrix::kUp], 5 * *b.matrices[Matrix::kGate]);
}

// Each figure against the tests' own loops with only that matrix replaced.
TEST(Attribution, EachMatrixIsMeasuredWithTheOthersExact) {
  test::Random random;
  Study study(random, 40, 70, /*gated=*/true, /*biases=*/true);
  study.Quantize({{kQ4, kQ8, kC8}});
  const Attribution a = study.Attribute();
  const std::vector<double> y = study.Double().Forward(study.x);
  for (const Matrix m : kMatrices) {
    test::DoubleBlock block = study.Double();
    block.matrices[m] = test::DoubleMatrix::From(study.view.matrices[m]);
    EXPECT_NEAR(*a.matrices[m], test::RelativeL2(y, block.Forward(study.x)), 1e-6) << Name(m);
  }
}

// A rescaled file: all figures are those of the matrices with the factors divided out.
TEST(Rescaled, FiguresAreThoseOfDequantizingAndDividing) {
  test::Random random;
  Study study(random, 40, 70, /*gated=*/true, /*biases=*/true, 40);
  study.Rescale(random);
  study.Quantize({{kQ4, kQ8, kQ4}});
  const BlockComparison comparison = study.Compare();
  const std::vector<double> y = study.Double().Forward(study.x);
  EXPECT_THAT(Faults(comparison), IsEmpty());
  for (const Matrix m : kMatrices) {
    test::DoubleBlock block = study.Double();
    const std::vector<double> exact = block.matrices[m].weights;
    block.matrices[m] = study.Restored(m);
    const MatrixReport& report = *comparison.report.matrices[m];
    std::vector<float> restored(block.matrices[m].weights.begin(), block.matrices[m].weights.end());
    EXPECT_NEAR(report.weight_relative_rmse, test::RelativeL2(exact, restored), 1e-6) << Name(m);
    EXPECT_NEAR(*comparison.report.attribution.matrices[m],
                test::RelativeL2(y, block.Forward(study.x)), 1e-6)
        << Name(m);
  }
  double shares = 0;
  for (const NeuronShare& neuron : comparison.report.worst_neurons) shares += neuron.share;
  EXPECT_GT(shares, 0);
  EXPECT_LT(shares, 1);
}

// The hidden vector is rounded times the factors. Weights that lose nothing leave only that.
TEST(Rescaled, HiddenActivationsAreRoundedAsStored) {
  test::Random random;
  Study study(random, 64, 96, true, false, 32);
  for (LinearWeights& w : study.trained.matrices.items) {
    for (float& v : w.weights) v = 0x1p-9f * static_cast<float>(random.Integer(-127, 127));
  }
  study.Quantize({{kF32, kF32, kQ8}});
  const double plain = study.Attribute().hidden_activations;
  study.rescale.assign(96, 1);
  for (size_t j = 0; j < 96; j += 32) study.rescale[j] = 16;  // one value rules each block
  study.Quantize({{kF32, kF32, kQ8}});
  const Attribution a = study.Attribute();
  EXPECT_GT(a.hidden_activations, 2 * plain);
  EXPECT_NEAR(Together({a.hidden_activations, *a.matrices[Matrix::kDown]}) / a.all, 1, 0.1);
}

// Factors that are not the file's own are a fault like any other.
TEST(Rescaled, AWrongFactorIsFound) {
  test::Random random;
  Study study(random, 64, 96, true, false, 32);
  study.Rescale(random);
  study.Quantize(test::AllOf(kQ4));
  EXPECT_THAT(Faults(study.Compare()), IsEmpty());
  study.rescale[37] /= 64;
  const std::vector<Finding> faults = Faults(study.Compare());
  ASSERT_THAT(faults, Not(IsEmpty()));
  for (const Finding& finding : faults) {
    EXPECT_EQ(finding.kind, FindingKind::kOutlierWeight);
    EXPECT_EQ(finding.matrix, Matrix::kUp);
    EXPECT_EQ(finding.row, 37u);
  }
}

// Weights that lose nothing leave the activations' error alone.
TEST(Attribution, ActivationsAreAllOfTheErrorWhenTheWeightsAreExact) {
  test::Random random;
  for (const bool gated : {true, false}) {
    for (const ActivationFormat format : {ActivationFormat::kRow, ActivationFormat::kBlock}) {
      Study study(random, 96, 256, gated, false, 32);
      for (LinearWeights& w : study.trained.matrices.items) {
        for (float& v : w.weights) v = 0x1p-9f * static_cast<float>(random.Integer(-127, 127));
      }
      study.Quantize(test::AllOf(kQ8), format);
      const Attribution a = study.Attribute();
      for (const auto& matrix : a.matrices.items) EXPECT_EQ(matrix.value_or(0), 0);
      EXPECT_GT(a.input_activations, 1e-3);
      EXPECT_GT(a.hidden_activations, 1e-3);
      EXPECT_NEAR(Together({a.input_activations, a.hidden_activations}) / a.all, 1, 0.1)
          << Name(format);
    }
  }
}

// An f32 up beside an int4 gate reads x as it is.
TEST(Attribution, OnlyQuantizedMatricesSeeQuantizedInputs) {
  test::Random random;
  Study study(random, 64, 96);
  study.Quantize({{kQ4, kF32, kF32}});
  const double gate_only = study.Attribute().input_activations;
  study.Quantize({{kF32, kQ4, kF32}});
  const double up_only = study.Attribute().input_activations;
  study.Quantize({{kQ4, kQ4, kF32}});
  const double both = study.Attribute().input_activations;
  EXPECT_GT(gate_only, 1e-3);
  EXPECT_GT(up_only, 1e-3);
  EXPECT_NE(gate_only, up_only);
  EXPECT_GT(both, std::max(gate_only, up_only));
}

// A packed file whose gate and up changed places: a plausible output, and wrong.
TEST(PlantedFaults, SwappedGateAndUpShow) {
  test::Random random;
  Study study(random, 64, 96);
  study.Quantize(test::AllOf(kQ8));
  EXPECT_LT(study.Attribute().all, 0.05);
  std::swap(study.view.matrices[Matrix::kGate], study.view.matrices[Matrix::kUp]);
  const LayerReport report = study.Compare().report;
  EXPECT_GT(report.attribution.all, 0.5);
  EXPECT_GT(report.matrices[Matrix::kGate]->weight_relative_rmse, 1);
  EXPECT_LT(report.output.cosine_min, 0.9);
}

TEST(PlantedFaults, AnotherActivationShowsInAllOnly) {
  test::Random random;
  Study study(random, 64, 96);
  study.Quantize(test::AllOf(kQ8));
  study.view.activation = Activation::kRelu;
  const Attribution a = study.Attribute();
  EXPECT_GT(a.all, 0.1);
  EXPECT_LT(*a.matrices[Matrix::kGate], 0.02);
}

TEST(CompareBlock, DescribesTheMatrices) {
  test::Random random;
  Study study(random, 40, 70);
  study.Quantize({{kQ4, kC8, kBf16}}, ActivationFormat::kRow);
  const LayerReport report = study.Compare().report;
  EXPECT_EQ(report.tokens, 9u);
  EXPECT_EQ(report.input_activations, ActivationFormat::kRow);
  EXPECT_EQ(report.hidden_activations, ActivationFormat::kFloat);
  EXPECT_EQ(report.matrices[Matrix::kGate]->format, kQ4);
  EXPECT_EQ(report.matrices[Matrix::kGate]->rows, 70u);
  EXPECT_EQ(report.matrices[Matrix::kDown]->rows, 40u);
  EXPECT_EQ(report.matrices[Matrix::kDown]->cols, 70u);

  double error = 0;
  double norm = 0;
  double largest = 0;
  const std::vector<float>& down = study.trained.matrices[Matrix::kDown].weights;
  for (const double w : down) {
    const double e = static_cast<double>(ToFloat(ToBf16(static_cast<float>(w)))) - w;
    error += e * e;
    norm += w * w;
    largest = std::max(largest, std::fabs(e));
  }
  EXPECT_NEAR(report.matrices[Matrix::kDown]->weight_relative_rmse, std::sqrt(error / norm), 1e-12);
  EXPECT_EQ(report.matrices[Matrix::kDown]->weight_max_abs_error, largest);
}

TEST(CompareBlock, DoesNotDependOnThreads) {
  test::Random random;
  Study study(random, 64, 200);
  study.Quantize(test::AllOf(kQ4));
  auto pool = ThreadPool::Create(3);
  ASSERT_TRUE(pool.has_value());
  const LayerReport alone = study.Compare().report;
  const LayerReport shared = study.Compare(&*pool).report;
  EXPECT_EQ(alone.output.relative_l2, shared.output.relative_l2);
  EXPECT_EQ(alone.attribution.matrices, shared.attribution.matrices);
  EXPECT_EQ(alone.attribution.hidden_activations, shared.attribution.hidden_activations);
}

// CASES H6 and H18: counted, loud, and no division by zero.
TEST(CompareBlock, ReportsAnAllZeroMatrix) {
  test::Random random;
  Study study(random, 64, 96);
  study.trained.matrices[Matrix::kDown].weights.assign(64 * 96, 0.0f);
  study.Quantize(test::AllOf(kQ4));
  const BlockComparison comparison = study.Compare();
  ASSERT_EQ(comparison.findings.size(), 1u);
  EXPECT_EQ(comparison.findings[0].kind, FindingKind::kZeroMatrix);
  EXPECT_EQ(comparison.findings[0].matrix, Matrix::kDown);
  EXPECT_THAT(comparison.findings[0].message, HasSubstr("down: all weights are zero"));
  EXPECT_EQ(comparison.report.matrices[Matrix::kDown]->zero_blocks, 64u * 3);
  EXPECT_EQ(comparison.report.matrices[Matrix::kDown]->weight_relative_rmse, 0);
  EXPECT_EQ(comparison.report.output.relative_l2, 0);
  EXPECT_EQ(comparison.report.output.cosine_min, 1);
  EXPECT_EQ(comparison.report.attribution.matrices[Matrix::kGate], 0);
}

TEST(CompareBlock, CountsZeroBlocksWithoutComplaint) {
  test::Random random;
  Study study(random, 64, 96);
  std::vector<float>& gate = study.trained.matrices[Matrix::kGate].weights;
  std::fill_n(gate.begin() + 5 * 64 + 32, 32, 0.0f);
  study.Quantize(test::AllOf(kQ4));
  const BlockComparison comparison = study.Compare();
  EXPECT_EQ(comparison.report.matrices[Matrix::kGate]->zero_blocks, 1u);
  EXPECT_THAT(comparison.warnings, IsEmpty());
  for (const Finding& finding : comparison.findings) {
    EXPECT_EQ(finding.severity, Severity::kInfo) << finding.message;
  }
}

// CASES H8: weights that were lost are named with their row.
TEST(CompareBlock, ReportsBlocksThatBecameZeros) {
  test::Random random;
  Study study(random, 64, 96);
  std::vector<float>& up = study.trained.matrices[Matrix::kUp].weights;
  std::fill_n(up.begin() + 7 * 64 + 32, 32, 1e-39f);
  std::fill_n(up.begin() + 9 * 64, 64, 1e-39f);
  study.Quantize(test::AllOf(kQ4));
  const BlockComparison comparison = study.Compare();
  EXPECT_EQ(comparison.report.matrices[Matrix::kUp]->zero_blocks, 3u);
  EXPECT_THAT(comparison.warnings,
              ElementsAre(::testing::AllOf(HasSubstr("up: 3 blocks"), HasSubstr("row 7"))));
}

TEST(CompareBlock, ReportsOutputsThatAreNotFinite) {
  test::Random random;
  Study study(random, 64, 96);
  study.Quantize(test::AllOf(kQ4));
  study.Compare();
  study.computed[3 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  const auto comparison = study.Judge();
  ASSERT_TRUE(comparison.has_value());
  const auto bad = std::ranges::find(comparison->findings, FindingKind::kNotFinite, &Finding::kind);
  ASSERT_NE(bad, comparison->findings.end());
  EXPECT_EQ(bad->token, 3u);
  EXPECT_EQ(bad->message, "the output of 1 of 9 tokens is not finite");
  EXPECT_TRUE(std::isnan(comparison->report.output.relative_l2));
  EXPECT_EQ(comparison->report.output.worst_token, 3u);
  EXPECT_TRUE(std::isfinite(*comparison->report.attribution.matrices[Matrix::kUp]));
}

// The third term of the product's error, as differences of whole blocks.
TEST(CompareBlock, GateAndUpInteract) {
  test::Random random;
  Study study(random, 64, 96);
  study.Quantize({{kQ4, kQ4, kF32}});
  const LayerReport report = study.Compare().report;
  ASSERT_TRUE(report.interaction);
  const double gate = *report.attribution.matrices[Matrix::kGate];
  const double up = *report.attribution.matrices[Matrix::kUp];
  const GateUpInteraction& both = *report.interaction;
  EXPECT_GT(both.product, 0);
  EXPECT_LT(both.product, gate + up);
  const double first_order = gate * gate + up * up + 2 * both.cosine * gate * up;
  EXPECT_NEAR(both.together, std::sqrt(first_order), both.product * (1 + 1e-9));
  study.Quantize({{kQ4, kF32, kF32}});
  const auto alone = study.Compare().report.interaction;
  EXPECT_NEAR(alone->product, 0, 1e-12);
  EXPECT_NEAR(alone->together, *study.Attribute().matrices[Matrix::kGate], 1e-12);
  Study ungated(random, 64, 96, /*gated=*/false);
  ungated.Quantize(test::AllOf(kQ4));
  EXPECT_FALSE(ungated.Compare().report.interaction);
}

TEST(CompareBlock, RefusesOtherShapes) {
  test::Random random;
  Study study(random, 64, 96);
  study.Quantize(test::AllOf(kQ4));
  study.Compare();
  LinearWeights& up = study.trained.matrices[Matrix::kUp];
  std::swap(up.rows, up.cols);
  const auto shapes = study.Judge();
  ASSERT_FALSE(shapes.has_value());
  EXPECT_THAT(shapes.error().message,
              ::testing::AllOf(HasSubstr("up is [64, 96]"), HasSubstr("[96, 64]")));
  study.trained.gated = false;
  const auto gated = study.Judge();
  ASSERT_FALSE(gated.has_value());
  EXPECT_THAT(gated.error().message, HasSubstr("ungated in the checkpoint, but gated"));
}

TEST(CompareBlock, PassesOnWhatTheCheckpointRefuses) {
  test::Random random;
  Study study(random, 64, 96);
  study.Quantize(test::AllOf(kQ4));
  study.Compare();
  const ExactBlock exact = {Activation::kSilu, true, [&](Matrix m) -> Expected<LinearWeights> {
                              if (m == Matrix::kDown) {
                                return std::unexpected(Error{ErrorCode::kCorrupt, "broken"});
                              }
                              return study.trained.matrices[m];
                            }};
  const auto comparison =
      CompareBlock(exact, study.view, study.inputs(), {study.computed.data(), 9, 64}, nullptr);
  ASSERT_FALSE(comparison.has_value());
  EXPECT_EQ(comparison.error().message, "broken");
}

}  // namespace
}  // namespace sluice
