// Captured and random inputs.
#include "quant/analysis/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CalibrationFile : public ::testing::Test {
 protected:
  // Writes one tensor per (name, shape), all with the values 0, 1, 2, …
  std::string Write(const std::vector<SafetensorsTensor>& tensors) {
    std::vector<std::span<const std::byte>> data;
    data.reserve(tensors.size());
    for (const SafetensorsTensor& tensor : tensors) {
      data.push_back(
          std::as_bytes(std::span(values_)).first(*TensorBytes(tensor.dtype, tensor.shape)));
    }
    const std::string path = dir_.File("calibration.safetensors");
    const Status status = WriteSafetensors(path, tensors, data);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    return path;
  }

  test::TempDir dir_;
  std::vector<float> values_ = [] {
    std::vector<float> v(64);
    for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
    return v;
  }();
};

std::string OpenError(const std::string& path) {
  const auto calibration = Calibration::Open(path);
  return calibration.has_value() ? "no error" : calibration.error().message;
}

TEST_F(CalibrationFile, GivesEachLayerItsTokens) {
  const std::string path = Write({{"model.layers.0.mlp.input", "F32", {2, 4}},
                                  {"model.layers.12.mlp.input", "F32", {3, 4}},
                                  {"other", "BF16", {5}}});
  const auto calibration = Calibration::Open(path);
  ASSERT_TRUE(calibration.has_value()) << calibration.error().message;
  EXPECT_FALSE(calibration->random());
  EXPECT_EQ(calibration->source(), path);
  EXPECT_EQ(calibration->tokens(), 3u);
  const auto first = calibration->Inputs(0, 4);
  ASSERT_TRUE(first.has_value() && first->has_value());
  EXPECT_EQ(**first, (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ((*calibration->Inputs(12, 4))->size(), 12u);
  EXPECT_EQ(*calibration->Inputs(1, 4), std::nullopt);
}

TEST_F(CalibrationFile, ALayerWithoutTokensHasNothing) {
  const auto calibration = Calibration::Open(Write(
      {{"model.layers.0.mlp.input", "F32", {1, 4}}, {"model.layers.1.mlp.input", "F32", {0, 4}}}));
  ASSERT_TRUE(calibration.has_value()) << calibration.error().message;
  EXPECT_EQ(*calibration->Inputs(1, 4), std::nullopt);
}

TEST_F(CalibrationFile, RefusesOtherFiles) {
  EXPECT_THAT(OpenError(dir_.File("none.safetensors")), HasSubstr("none.safetensors"));
  EXPECT_THAT(OpenError(Write({{"x", "F32", {2, 4}}})), HasSubstr("model.layers.N.mlp.input"));
  EXPECT_THAT(OpenError(Write({{"model.layers..mlp.input", "F32", {2, 4}},
                               {"model.layers.x.mlp.input", "F32", {2, 4}}})),
              HasSubstr("model.layers.N.mlp.input"));
  EXPECT_THAT(OpenError(Write({{"model.layers.0.mlp.input", "BF16", {2, 4}}})),
              AllOf(HasSubstr("model.layers.0.mlp.input"), HasSubstr("BF16")));
  EXPECT_THAT(OpenError(Write({{"model.layers.7.mlp.input", "F32", {2, 2, 2}}})),
              AllOf(HasSubstr("model.layers.7.mlp.input"), HasSubstr("[2, 2, 2]")));
}

TEST_F(CalibrationFile, RefusesAWrongWidth) {
  const auto calibration = Calibration::Open(Write({{"model.layers.0.mlp.input", "F32", {2, 4}}}));
  const auto inputs = calibration->Inputs(0, 8);
  ASSERT_FALSE(inputs.has_value());
  EXPECT_THAT(inputs.error().message,
              AllOf(HasSubstr("model.layers.0.mlp.input"), HasSubstr("[2, 4]"), HasSubstr("8")));
}

TEST_F(CalibrationFile, RefusesValuesThatAreNotFinite) {
  for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
    values_[6] = bad;
    const auto calibration =
        Calibration::Open(Write({{"model.layers.0.mlp.input", "F32", {2, 4}}}));
    const auto inputs = calibration->Inputs(0, 4);
    ASSERT_FALSE(inputs.has_value());
    EXPECT_THAT(inputs.error().message, HasSubstr("model.layers.0.mlp.input [1, 2]"));
  }
}

std::vector<float> RandomInputs(size_t tokens, uint64_t seed, size_t layer, size_t d) {
  return **Calibration::Random(tokens, seed).Inputs(layer, d);
}

TEST(RandomCalibration, IsStandardNormal) {
  const std::vector<float> values = RandomInputs(128, 7, 3, 513);
  ASSERT_EQ(values.size(), 128u * 513);
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  size_t beyond_two = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
    beyond_two += std::fabs(v) > 2;
  }
  const auto n = static_cast<double>(values.size());
  // Six standard errors each; the seed is fixed, so this cannot fail by chance.
  EXPECT_NEAR(sum / n, 0, 6 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 6 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 6 * std::sqrt(96 / n));
  EXPECT_NEAR(static_cast<double>(beyond_two) / n, 0.0455, 6 * std::sqrt(0.0455 / n));
}

TEST(RandomCalibration, IsTheSameForTheSameSeedAndOtherwiseDiffers) {
  EXPECT_EQ(RandomInputs(4, 1, 0, 8), RandomInputs(4, 1, 0, 8));
  EXPECT_NE(RandomInputs(4, 1, 0, 8), RandomInputs(4, 2, 0, 8));
  EXPECT_NE(RandomInputs(4, 1, 0, 8), RandomInputs(4, 1, 1, 8));
  const Calibration calibration = Calibration::Random(4, 1);
  EXPECT_TRUE(calibration.random());
  EXPECT_EQ(calibration.source(), "random");
  EXPECT_EQ(calibration.tokens(), 4u);
}

}  // namespace
}  // namespace sluice
