// The rules that give each matrix its format, and their refusals (CASES H25).
#include "quant/quantizer/format_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr WeightFormat kQ4 = {WeightType::kInt4, 32};
constexpr WeightFormat kQ4x64 = {WeightType::kInt4, 64};
constexpr WeightFormat kQ8 = {WeightType::kInt8, 32};
constexpr WeightFormat kC8 = {WeightType::kInt8, 0};
constexpr WeightFormat kF32 = {WeightType::kF32, 0};

std::vector<SourceLayer> Layers(size_t first, size_t count, bool gated = true) {
  std::vector<SourceLayer> layers(count);
  for (size_t i = 0; i < count; ++i) {
    layers[i].layer = first + i;
    layers[i].gated = gated;
  }
  return layers;
}

FormatOverride Rule(const std::string& text) {
  auto rule = ParseFormatOverride(text);
  EXPECT_TRUE(rule.has_value()) << rule.error().message;
  return *std::move(rule);
}

std::vector<LayerFormats> Plan(const FormatRequest& request,
                               const std::vector<SourceLayer>& layers) {
  auto plan = PlanFormats(request, layers);
  EXPECT_TRUE(plan.has_value()) << plan.error().message;
  return *std::move(plan);
}

std::string PlanError(const FormatRequest& request, const std::vector<SourceLayer>& layers) {
  const auto plan = PlanFormats(request, layers);
  return plan.has_value() ? "no error" : plan.error().message;
}

std::vector<WeightFormat> Of(Matrix matrix, const std::vector<LayerFormats>& plan) {
  std::vector<WeightFormat> formats;
  formats.reserve(plan.size());
  for (const LayerFormats& layer : plan) formats.push_back(layer.formats[matrix]);
  return formats;
}

TEST(ParseLayerRange, TakesRangesAndSingleLayers) {
  EXPECT_EQ(ParseLayerRange("0-3"), (LayerRange{0, 3}));
  EXPECT_EQ(ParseLayerRange("7-7"), (LayerRange{7, 7}));
  EXPECT_EQ(ParseLayerRange("12"), (LayerRange{12, 12}));
  for (const char* bad : {"", "-", "3-", "-3", "3-1", "a", "1-2-3", "1 - 2", "0x1", "+1", "*",
                          "99999999999999999999999"}) {
    EXPECT_FALSE(ParseLayerRange(bad).has_value()) << bad;
  }
}

TEST(ParseFormatOverride, TakesTheFourFormsOfLayers) {
  EXPECT_THAT(Rule("*:down=qc8w").layers, ElementsAre());
  EXPECT_THAT(Rule("3:down=qc8w").layers, ElementsAre(LayerRange{3, 3}));
  EXPECT_THAT(Rule("1-2:gate=f32").layers, ElementsAre(LayerRange{1, 2}));
  const FormatOverride list = Rule("0,4-6,9:up=qb4w:64");
  EXPECT_THAT(list.layers, ElementsAre(LayerRange{0, 0}, LayerRange{4, 6}, LayerRange{9, 9}));
  EXPECT_EQ(list.matrix, Matrix::kUp);
  EXPECT_EQ(list.format, kQ4x64);
  EXPECT_EQ(list.text, "0,4-6,9:up=qb4w:64");
}

TEST(ParseFormatOverride, NamesWhatItCannotRead) {
  const auto error = [](const char* text) {
    const auto rule = ParseFormatOverride(text);
    return rule.has_value() ? std::string("no error") : rule.error().message;
  };
  EXPECT_THAT(error("down=qc8w"), HasSubstr("LAYERS:MATRIX=FMT"));
  EXPECT_THAT(error("3:down"), HasSubstr("LAYERS:MATRIX=FMT"));
  EXPECT_THAT(error(""), HasSubstr("LAYERS:MATRIX=FMT"));
  EXPECT_THAT(error("=3:down"), HasSubstr("LAYERS:MATRIX=FMT"));
  EXPECT_THAT(error("1,:down=qc8w"), HasSubstr("\"1,\""));
  EXPECT_THAT(error(":down=qc8w"), HasSubstr("\"\""));
  EXPECT_THAT(error("*,1:down=qc8w"), HasSubstr("\"*,1\""));
  EXPECT_THAT(error("3:w2=qc8w"), HasSubstr("\"w2\""));
  EXPECT_THAT(error("3:down=q8_0"), HasSubstr("\"q8_0\""));
}

TEST(PlanFormats, DefaultsToInt4BlocksOf32) {
  const auto plan = Plan({}, Layers(0, 2));
  ASSERT_EQ(plan.size(), 2u);
  for (const Matrix m : kMatrices) EXPECT_THAT(Of(m, plan), ElementsAre(kQ4, kQ4));
}

TEST(PlanFormats, AMatrixOptionWinsOverWeights) {
  FormatRequest request;
  request.weights = kC8;
  request.matrices[Matrix::kDown] = kF32;
  const auto plan = Plan(request, Layers(0, 1));
  EXPECT_EQ(plan[0].formats, (PerMatrix<WeightFormat>{{kC8, kC8, kF32}}));
}

TEST(PlanFormats, AnOverrideWinsOverAMatrixOptionInItsLayersOnly) {
  FormatRequest request;
  request.matrices[Matrix::kDown] = kQ8;
  request.overrides = {Rule("0,2-3:down=qc8w")};
  const auto plan = Plan(request, Layers(0, 5));
  EXPECT_THAT(Of(Matrix::kDown, plan), ElementsAre(kC8, kQ8, kC8, kC8, kQ8));
  EXPECT_THAT(Of(Matrix::kUp, plan), ElementsAre(kQ4, kQ4, kQ4, kQ4, kQ4));
}

// H25: two rules for the same matrix.
TEST(PlanFormats, TheLastOverrideWins) {
  FormatRequest request;
  request.overrides = {Rule("*:down=qc8w"), Rule("1:down=f32"), Rule("1-2:down=qb8w:32")};
  EXPECT_THAT(Of(Matrix::kDown, Plan(request, Layers(0, 4))), ElementsAre(kC8, kQ8, kQ8, kC8));
  std::swap(request.overrides[0], request.overrides[2]);
  EXPECT_THAT(Of(Matrix::kDown, Plan(request, Layers(0, 4))), ElementsAre(kC8, kC8, kC8, kC8));
}

// H25: of three rules one is valid, one matches nothing, and one has a block that does not divide
// K, which is no reason for another format here.
TEST(PlanFormats, ARuleThatMatchesNothingIsAnError) {
  FormatRequest request;
  request.overrides = {Rule("0:down=qc8w"), Rule("4:down=qc8w"), Rule("1:up=qb4w:128")};
  EXPECT_THAT(PlanError(request, Layers(0, 4)),
              ::testing::AllOf(HasSubstr("--override 4:down=qc8w"), HasSubstr("0-3")));
  request.overrides.erase(request.overrides.begin() + 1);
  auto layers = Layers(0, 4);
  for (SourceLayer& layer : layers) layer.d_model = 576;
  const auto plan = Plan(request, layers);
  EXPECT_EQ(plan[1].formats[Matrix::kUp], (WeightFormat{WeightType::kInt4, 128}));
}

TEST(PlanFormats, EveryItemOfAnOverridesListMustMatch) {
  FormatRequest request;
  request.overrides = {Rule("0,9:down=qc8w")};
  EXPECT_THAT(PlanError(request, Layers(0, 4)), HasSubstr("among 9"));
  request.overrides = {Rule("2-9:down=qc8w")};
  EXPECT_THAT(Of(Matrix::kDown, Plan(request, Layers(0, 4))), ElementsAre(kQ4, kQ4, kC8, kC8));
}

TEST(PlanFormats, LayersAreInclusiveAndKeepTheirNumbers) {
  FormatRequest request;
  request.layers = LayerRange{5, 7};
  request.overrides = {Rule("6:down=qc8w")};
  const auto plan = Plan(request, Layers(3, 10));
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(plan[0].layer, 5u);
  EXPECT_EQ(plan[2].layer, 7u);
  EXPECT_THAT(Of(Matrix::kDown, plan), ElementsAre(kQ4, kC8, kQ4));
  request.overrides = {Rule("8:down=qc8w")};  // in the checkpoint, but not to be quantized
  EXPECT_THAT(PlanError(request, Layers(3, 10)), HasSubstr("--override 8:down=qc8w"));
}

TEST(PlanFormats, LayersThatAreNotThereAreAnError) {
  FormatRequest request;
  request.layers = LayerRange{2, 4};
  EXPECT_THAT(PlanError(request, Layers(0, 4)), HasSubstr("no layer 4"));
  EXPECT_THAT(PlanError(request, Layers(3, 9)), HasSubstr("no layer 2"));
  EXPECT_THAT(PlanError({}, {}), HasSubstr("no feed-forward layers"));
}

TEST(PlanFormats, AFormatForAGateThatIsNotThereIsAnError) {
  FormatRequest request;
  request.matrices[Matrix::kGate] = kQ4;
  EXPECT_THAT(PlanError(request, Layers(0, 2, false)), HasSubstr("--gate qb4w:32"));
  request = {};
  request.overrides = {Rule("*:gate=qc8w")};
  EXPECT_THAT(PlanError(request, Layers(0, 2, false)), HasSubstr("has a gate"));
  auto mixed = Layers(0, 2);
  mixed[0].gated = false;
  EXPECT_EQ(Plan(request, mixed)[1].formats[Matrix::kGate], kC8);
  request.overrides = {Rule("0:gate=qc8w")};
  EXPECT_THAT(PlanError(request, mixed), HasSubstr("--override 0:gate=qc8w"));
}

}  // namespace
}  // namespace sluice
