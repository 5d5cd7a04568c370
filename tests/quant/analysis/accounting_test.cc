// The sizes that must come out right.
#include "quant/analysis/accounting.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "sluice/model.h"
#include "src/base/aligned_buffer.h"

namespace sluice {
namespace {

double Millions(uint64_t n) { return std::round(static_cast<double>(n) / 1e4) / 100; }

TEST(Sizes, AttentionAndVanillaBlock) {
  for (const uint64_t d : {512u, 768u, 4096u}) {
    EXPECT_EQ(AttentionWeightCount(d), 4 * d * d);
    EXPECT_EQ(FfnWeightCount(d, 4 * d, false), 8 * d * d);
    EXPECT_EQ(3 * FfnWeightCount(d, 4 * d, false),
              2 * (FfnWeightCount(d, 4 * d, false) + AttentionWeightCount(d)));
  }
}

TEST(Sizes, D512) {
  EXPECT_EQ(Millions(AttentionWeightCount(512)), 1.05);
  EXPECT_EQ(Millions(FfnWeightCount(512, 2048, false)), 2.10);
}

TEST(Sizes, Gpt2Small) {
  EXPECT_EQ(Millions(AttentionWeightCount(768)), 2.36);
  EXPECT_EQ(Millions(FfnWeightCount(768, 3072, false)), 4.72);
  EXPECT_EQ(std::round(static_cast<double>(12 * FfnWeightCount(768, 3072, false)) / 1e6), 57);
}

TEST(Sizes, GatedWidthThatMatchesAVanillaBlock) {
  EXPECT_EQ(MatchedGatedWidth(4096), 10923u);
  EXPECT_EQ(RoundUp(MatchedGatedWidth(4096), 256), 11008u);  // Llama-2-7B
  EXPECT_EQ(MatchedGatedWidth(3), 8u);
  EXPECT_EQ(MatchedGatedWidth(2), 5u);  // 5.33
  EXPECT_EQ(MatchedGatedWidth(1), 3u);  // 2.67
}

template <class Layer, class MatrixOf>
Layer MakeLayer(uint64_t d, uint64_t m, bool gated, bool biases, uint64_t bytes) {
  Layer layer;
  for (const Matrix matrix : kMatrices) {
    if (matrix == Matrix::kGate && !gated) continue;
    MatrixOf& of = layer.matrices[matrix].emplace();
    of.rows = matrix == Matrix::kDown ? d : m;
    of.cols = matrix == Matrix::kDown ? m : d;
    of.bytes = bytes;
    if (biases) of.bias_name = "b";
  }
  return layer;
}

TEST(Account, AddsUpAGatedCheckpoint) {
  const std::vector<SourceLayer> layers(
      30, MakeLayer<SourceLayer, SourceMatrix>(576, 1536, true, false, 552960));
  const FfnTotals totals = Account(layers);
  EXPECT_EQ(totals.parameters(), 30u * 3 * 576 * 1536);
  EXPECT_EQ(totals.flops_per_token(), 2 * totals.parameters());
  EXPECT_EQ(totals.bytes, 90u * 552960);
  EXPECT_DOUBLE_EQ(totals.bits_per_weight(), 5.0);  // Q4_1
}

TEST(Account, CountsBiasesAsParametersButNotAsOperations) {
  const std::vector<LayerInfo> layers(
      2, MakeLayer<LayerInfo, MatrixInfo>(384, 1536, false, true, 100));
  const FfnTotals totals = Account(layers);
  EXPECT_EQ(totals.weights, 2u * 2 * 384 * 1536);
  EXPECT_EQ(totals.parameters(), totals.weights + 2 * (384 + 1536));
  EXPECT_EQ(totals.flops_per_token(), 2 * totals.weights);
}

}  // namespace
}  // namespace sluice
