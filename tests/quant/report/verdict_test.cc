#include "quant/report/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/quant/report/synthetic_report.h"

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Verdict, NamesTheWorstLayerAndBothErrors) {
  ModelReport report = test::SyntheticReport(3);
  report.layers[1].output.relative_l2 = 0.25;
  report.totals.relative_l2_mean = 0.125;
  const Verdict verdict = Judge(report);
  EXPECT_THAT(verdict.cost, HasSubstr("12.5 %"));
  EXPECT_THAT(verdict.cost, HasSubstr("25.0 % at worst, in layer 1"));
  EXPECT_THAT(verdict.cost, HasSubstr("calibration inputs"));
}

TEST(Verdict, NamesTheLargestPartAndTheNextWithTheirFormats) {
  const Verdict verdict = Judge(test::SyntheticReport(4));
  EXPECT_THAT(verdict.source, HasSubstr("comes from up (qb4w:32)"));
  EXPECT_THAT(verdict.source, HasSubstr("Next is gate (qb4w:32)"));
}

TEST(Verdict, FormatsThatDifferBetweenLayersAreNotNamed) {
  ModelReport report = test::SyntheticReport(2);
  report.layers[1].matrices[Matrix::kUp]->format = {WeightType::kInt4, 64};
  EXPECT_THAT(Judge(report).source, HasSubstr("comes from up: "));
}

TEST(Verdict, ActivationsCanBeTheLargestPart) {
  ModelReport report = test::SyntheticReport(1);
  report.layers[0].attribution.hidden_activations = 0.5;
  EXPECT_THAT(Judge(report).source, HasSubstr("comes from the hidden activations"));
}

TEST(Verdict, ComparesSizeWithFp32) {
  ModelReport report = test::SyntheticReport(1);
  report.totals.ffn_bytes = 3ull * 576 * 1536 / 2;  // a tenth… of 4 bytes: an eighth
  report.totals.bits_per_weight = 4;
  EXPECT_THAT(Judge(report).size, HasSubstr("4.00 bits"));
  EXPECT_THAT(Judge(report).size, HasSubstr("8.00 times less"));
  EXPECT_EQ(Fp32Bytes(report), 4u * 3 * 576 * 1536);
}

TEST(Verdict, ComparesSizeWithTheSource) {
  ModelReport report = test::SyntheticReport(1);
  report.totals.ffn_bytes = 3ull * 576 * 1536 / 2;
  EXPECT_THAT(Judge(report).size, Not(HasSubstr("source")));  // nothing is known of it
  report.source = {.types = {{"F32", 3}}, .quantized = 0, .bytes = Fp32Bytes(report)};
  EXPECT_THAT(Judge(report).size, Not(HasSubstr("source")));  // which would say it twice
  report.source = {.types = {{"BF16", 3}}, .quantized = 0, .bytes = Fp32Bytes(report) / 2};
  EXPECT_THAT(Judge(report).size, HasSubstr("as BF16: 4.00 times as much"));
  report.source = {
      .types = {{"Q4_K", 2}, {"Q6_K", 1}}, .quantized = 3, .bytes = report.totals.ffn_bytes / 2};
  EXPECT_THAT(Judge(report).size,
              HasSubstr("as Q4_K (2 matrices), Q6_K (1 matrix): 0.500 times as much"));
}

TEST(Verdict, OnlyASourceOfIntegersIsWarnedOf) {
  EXPECT_EQ(QuantizedSourceWarning({}), "");
  EXPECT_EQ(QuantizedSourceWarning({.types = {{"BF16", 6}}, .quantized = 0, .bytes = 1}), "");
  EXPECT_THAT(QuantizedSourceWarning({.types = {{"Q4_1", 6}}, .quantized = 6, .bytes = 1}),
              HasSubstr("all 6 matrices were integers before: Q4_1."));
  EXPECT_THAT(
      QuantizedSourceWarning({.types = {{"F16", 2}, {"Q5_0", 4}}, .quantized = 4, .bytes = 1}),
      HasSubstr("4 of 6 matrices were integers"));
}

TEST(Verdict, AnErrorThatIsNotFiniteIsTheWorstAndIsSaid) {
  ModelReport report = test::SyntheticReport(4);
  report.layers[2].output.relative_l2 = kNan;
  EXPECT_EQ(WorstLayer(report), 2u);
  EXPECT_THAT(Judge(report).cost, HasSubstr("Layer 2: the error is not a finite number"));
}

TEST(Verdict, NoError) {
  ModelReport report = test::SyntheticReport(1);
  report.layers[0].output.relative_l2 = 0;
  EXPECT_THAT(Judge(report).cost, HasSubstr("exactly"));
}

TEST(Verdict, NoLayers) {
  const ModelReport report = test::SyntheticReport(0);
  EXPECT_EQ(WorstLayer(report), std::nullopt);
  EXPECT_EQ(Judge(report).cost, "There are no layers.");
}

TEST(Verdict, MeanErrorLeavesOutLayersWithoutAGate) {
  ModelReport report = test::SyntheticReport(2);
  report.layers[0].attribution.matrices[Matrix::kGate] = std::nullopt;
  report.layers[1].attribution.matrices[Matrix::kGate] = 0.5;
  EXPECT_EQ(MeanError(report, kParts[0]), 0.5);
  report.layers[1].attribution.matrices[Matrix::kGate] = std::nullopt;
  EXPECT_EQ(MeanError(report, kParts[0]), std::nullopt);
}

TEST(Verdict, OnlyRandomInputsAreWarnedOf) {
  ModelReport report = test::SyntheticReport(1);
  EXPECT_EQ(RandomInputsWarning(report), "");
  report.calibration_source = "random";
  EXPECT_THAT(RandomInputsWarning(report), HasSubstr("RANDOM INPUTS"));
  EXPECT_THAT(Judge(report).cost, HasSubstr("On random inputs"));
  EXPECT_THAT(Judge(report).cost, Not(HasSubstr("calibration")));
}

TEST(Verdict, TheRandomInputsAreNotWarnedOfTwice) {
  ModelReport report = test::SyntheticReport(1);
  report.warnings = {"RANDOM INPUTS: so it is", "layer 0: FILE has none; RANDOM INPUTS"};
  EXPECT_EQ(OtherWarnings(report).size(), 2u);
  report.calibration_source = "random";
  EXPECT_THAT(OtherWarnings(report), testing::ElementsAre("layer 0: FILE has none; RANDOM INPUTS"));
}

}  // namespace
}  // namespace sluice
