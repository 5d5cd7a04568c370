#include "quant/report/matrix_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/quant/report/synthetic_report.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr WeightFormat kInt4 = {WeightType::kInt4, 32};
constexpr WeightFormat kInt8 = {WeightType::kInt8, 32};

TEST(MatrixSummary, OneRowForEachMatrixAndFormat) {
  ModelReport report = test::SyntheticReport(4);
  report.layers[3].matrices[Matrix::kDown] = test::SyntheticMatrix(kInt4, 576, 1536, 0.2);
  const std::vector<SummaryRow> rows = Summarize(MatricesOf(report));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].matrix, Matrix::kGate);
  EXPECT_THAT(rows[0].layers, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(rows[2].matrix, Matrix::kDown);
  EXPECT_EQ(rows[2].format, kInt8);
  EXPECT_THAT(rows[2].layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(rows[3].format, kInt4);
  EXPECT_THAT(rows[3].layers, ElementsAre(3));
}

TEST(MatrixSummary, AddsUpSizesAndFindsTheWorst) {
  std::vector<MatricesOfLayer> layers(2);
  layers[0] = {.layer = 5, .matrices = {}};
  layers[0].matrices[Matrix::kUp] = test::SyntheticMatrix(kInt4, 16, 32, 0.1);
  layers[0].matrices[Matrix::kUp]->zero_blocks = 2;
  layers[1] = {.layer = 9, .matrices = {}};
  layers[1].matrices[Matrix::kUp] = test::SyntheticMatrix(kInt4, 48, 32, 0.3);
  layers[1].matrices[Matrix::kUp]->bits_per_weight = 6.5;
  const std::vector<SummaryRow> rows = Summarize(layers);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_DOUBLE_EQ(rows[0].bytes, (16 * 32 * 4.5 + 48 * 32 * 6.5) / 8);
  EXPECT_DOUBLE_EQ(rows[0].bits_per_weight, 6.0);
  EXPECT_DOUBLE_EQ(rows[0].rmse_mean, 0.2);
  EXPECT_DOUBLE_EQ(rows[0].rmse_max, 0.3);
  EXPECT_EQ(rows[0].rmse_max_layer, 9u);
  EXPECT_DOUBLE_EQ(rows[0].max_abs_error, 0.075);
  EXPECT_EQ(rows[0].zero_blocks, 2u);
}

TEST(MatrixSummary, ASubstitutedFormatIsMarked) {
  ModelReport report = test::SyntheticReport(1);
  EXPECT_THAT(SummaryText(Summarize(MatricesOf(report))), Not(HasSubstr("not as requested")));
  report.layers[0].matrices[Matrix::kUp]->requested = kInt8;
  EXPECT_THAT(SummaryText(Summarize(MatricesOf(report))),
              HasSubstr("qb8w:32    qb4w:32  (not as requested)"));
}

}  // namespace
}  // namespace sluice
