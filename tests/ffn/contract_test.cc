// The numerics contract: Forward is a pure function of (weights, x). Every target with FMA, any
// number of threads, alone or in a batch, gives the reference's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/kernel_targets.h"
#include "tests/support/random_block.h"
#include "tests/support/run_block.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using test::Agrees;
using test::AllOf;
using test::AttainableKernels;
using test::BlockOptions;
using test::FirstDifference;
using test::MakeRandomBlock;
using test::Random;
using test::RandomBlock;
using test::RunBlock;

constexpr WeightFormat kQb4w32 = {WeightType::kInt4, 32};
constexpr WeightFormat kQb4w64 = {WeightType::kInt4, 64};
constexpr WeightFormat kQc8w = {WeightType::kInt8, 0};
constexpr WeightFormat kBf16 = {WeightType::kBf16, 0};
constexpr WeightFormat kF32 = {WeightType::kF32, 0};

std::vector<float> Token(const std::vector<float>& rows, size_t t, size_t d) {
  return {rows.begin() + static_cast<ptrdiff_t>(t * d),
          rows.begin() + static_cast<ptrdiff_t>((t + 1) * d)};
}

// One block on every target, whole and token by token.
void CheckBlockEverywhere(const RandomBlock& block, const std::vector<float>& x,
                          const std::string& what) {
  const size_t d = block.view.d_model;
  const size_t tokens = x.size() / d;
  const std::vector<float> want = RunBlock(block.view, x, {.backend = "reference"});
  ASSERT_EQ(want.size(), x.size());
  for (const Kernels* kernels : AttainableKernels()) {
    const FfnOptions options = {.target = kernels->target};
    const std::vector<float> got = RunBlock(block.view, x, options);
    ASSERT_TRUE(Agrees(*kernels, got, want))
        << what << " on " << kernels->target << ", differs at " << FirstDifference(got, want);
    for (size_t t = 0; t < tokens; ++t) {
      const std::vector<float> alone = RunBlock(block.view, Token(x, t, d), options);
      // A token's result does not depend on its company, on any target.
      ASSERT_LT(FirstDifference(alone, Token(got, t, d)), 0)
          << what << " on " << kernels->target << ": token " << t << " alone";
    }
  }
  // The default choice, which may take one target for few tokens and another for many.
  ASSERT_TRUE(Agrees(*AttainableKernels().front(), RunBlock(block.view, x, {}), want)) << what;
}

// How work is split does not depend on the target, so the default one stands for all.
void CheckThreads(const RandomBlock& block, const std::vector<float>& x, const std::string& what) {
  const size_t d = block.view.d_model;
  const std::vector<float> want = RunBlock(block.view, x, {});
  for (size_t threads = 1; threads <= 8; ++threads) {
    ThreadPool pool = *ThreadPool::Create(threads);
    const FfnOptions options = {.pool = &pool};
    ASSERT_LT(FirstDifference(RunBlock(block.view, x, options), want), 0)
        << what << ", " << threads << " threads";
    ASSERT_LT(FirstDifference(RunBlock(block.view, Token(x, 0, d), options), Token(want, 0, d)), 0)
        << what << ", " << threads << " threads, one token";
  }
}

class ContractTest : public testing::TestWithParam<std::tuple<WeightFormat, ActivationFormat>> {};

TEST_P(ContractTest, EveryTargetThreadCountAndBatch) {
  const auto [format, activations] = GetParam();
  Random random;
  struct Size {
    size_t d, m, tokens;
  };
  for (const Size size : {Size{1, 1, 3},
                          {15, 17, 5},
                          {17, 15, 4},
                          {31, 33, 9},
                          {33, 172, 7},
                          {172, 31, 13},
                          {64, 96, 40}}) {
    BlockOptions options;
    options.formats = AllOf(format);
    options.activations = activations;
    options.biases = size.d % 2 == 1;
    const RandomBlock block = MakeRandomBlock(random, size.d, size.m, options);
    CheckBlockEverywhere(block, test::RandomVector(random, size.tokens * size.d),
                         Name(format) + "/" + std::string(Name(activations)) + " " +
                             std::to_string(size.d) + "x" + std::to_string(size.m));
  }
}

std::string ContractName(const testing::TestParamInfo<ContractTest::ParamType>& test) {
  std::string name =
      Name(std::get<0>(test.param)) + "_" + std::string(Name(std::get<1>(test.param)));
  std::ranges::replace(name, ':', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Formats, ContractTest,
                         testing::Combine(testing::ValuesIn(kWeightFormats),
                                          testing::Values(ActivationFormat::kRow,
                                                          ActivationFormat::kBlock)),
                         ContractName);

// A size of a real model: 576 is no multiple of 128, 1536 rows split over many threads.
TEST(Contract, RealSize) {
  Random random;
  for (const WeightFormat format : {kQb4w32, WeightFormat{WeightType::kInt4, 128}, kQc8w}) {
    BlockOptions options;
    options.formats = AllOf(format);
    const RandomBlock block = MakeRandomBlock(random, 576, 1536, options);
    CheckBlockEverywhere(block, test::RandomVector(random, 3 * 576), Name(format) + " 576x1536");
  }
}

TEST(Contract, OneToEightThreads) {
  Random random;
  // One of each way that passes are cut: hidden blocks quantized at once, by row, not at all.
  for (const WeightFormat format : {kQb4w32, kQc8w, kBf16}) {
    BlockOptions options;
    options.formats = AllOf(format);
    const RandomBlock block = MakeRandomBlock(random, 172, 576, options);
    CheckThreads(block, test::RandomVector(random, 21 * 172), Name(format));
  }
}

// Formats that differ between gate, up and down, float and quantized mixed.
TEST(Contract, MixedFormats) {
  Random random;
  const std::vector<PerMatrix<WeightFormat>> mixtures = {
      {{kQb4w32, kQb4w64, kQc8w}},
      {{kQc8w, kQb4w32, kBf16}},
      {{kBf16, kQb4w64, kQb4w32}},
      {{kF32, kBf16, kQc8w}},
  };
  for (const auto& formats : mixtures) {
    BlockOptions options;
    options.formats = formats;
    options.biases = true;
    const RandomBlock block = MakeRandomBlock(random, 72, 100, options);
    CheckBlockEverywhere(block, test::RandomVector(random, 11 * 72),
                         Name(formats[Matrix::kGate]) + "+" + Name(formats[Matrix::kUp]) + "+" +
                             Name(formats[Matrix::kDown]));
  }
}

TEST(Contract, EveryActivationGatedAndUngated) {
  Random random;
  for (const Activation activation : kActivations) {
    for (const bool gated : {true, false}) {
      BlockOptions options;
      options.formats = AllOf(kQb4w32);
      options.activation = activation;
      options.gated = gated;
      options.biases = true;
      const RandomBlock block = MakeRandomBlock(random, 40, 50, options);
      CheckBlockEverywhere(block, test::RandomVector(random, 3 * 40),
                           std::string(Name(activation)) + (gated ? " gated" : " ungated"));
    }
  }
}

// More tokens than one pass takes, with a remainder of every register tile.
TEST(Contract, LongBatch) {
  Random random;
  BlockOptions options;
  options.formats = AllOf(kQb4w32);
  const RandomBlock block = MakeRandomBlock(random, 33, 48, options);
  CheckBlockEverywhere(block, test::RandomVector(random, 300 * 33), "300 tokens");
}

}  // namespace
}  // namespace sluice
