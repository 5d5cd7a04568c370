// Forward's behaviour: accuracy against double precision, residuals, poison, errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/base/fp_environment.h"
#include "tests/support/double_block.h"
#include "tests/support/kernel_targets.h"
#include "tests/support/random_block.h"
#include "tests/support/run_block.h"
#include "tests/support/seed.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace sluice {
namespace {

using test::AllOf;
using test::BlockOptions;
using test::FirstDifference;
using test::MakeRandomBlock;
using test::Random;
using test::RandomBlock;
using test::RunBlock;

constexpr WeightFormat kQb4w32 = {WeightType::kInt4, 32};
constexpr uint32_t kNanBits = 0x7FC00000u;

RandomBlock SmallBlock(Random& random, WeightFormat format = kQb4w32) {
  BlockOptions options;
  options.formats = AllOf(format);
  return MakeRandomBlock(random, 48, 80, options);
}

// Bounds of the issue: 0.02 with block activations, 0.05 with row, 1e-5 with float weights.
TEST(Forward, CloseToDoublePrecision) {
  Random random;
  for (const WeightFormat format : kWeightFormats) {
    for (const ActivationFormat activations : {ActivationFormat::kRow, ActivationFormat::kBlock}) {
      BlockOptions options;
      options.formats = AllOf(format);
      options.activations = activations;
      const RandomBlock block = MakeRandomBlock(random, 172, 256, options);
      const std::vector<float> x = test::RandomVector(random, 32 * 172);
      const std::vector<float> y = RunBlock(block.view, x, {});
      const std::vector<double> exact = test::DoubleBlock::From(block.view).Forward(x);
      const double bound = !format.quantized()                       ? 1e-5
                           : activations == ActivationFormat::kBlock ? 0.02
                                                                     : 0.05;
      EXPECT_LE(test::RelativeL2(std::span<const double>(exact), y), bound)
          << Name(format) << " " << Name(activations);
    }
  }
}

TEST(Forward, AddsToResidual) {
  Random random;
  const RandomBlock block = SmallBlock(random);
  const std::vector<float> x = test::RandomVector(random, 5 * 48);
  const std::vector<float> residual = test::RandomVector(random, 5 * 48);
  const std::vector<float> update = RunBlock(block.view, x, {});
  const std::vector<float> sum = RunBlock(block.view, x, {}, Output::kAddToResidual, residual);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(sum[i], residual[i] + update[i]);
}

// Rule 5: the row of a token that is not finite is NaN, with these bits, and no other row changes.
TEST(Forward, PoisonStaysInItsRow) {
  Random random;
  for (const WeightFormat format : kWeightFormats) {
    for (const ActivationFormat activations : {ActivationFormat::kRow, ActivationFormat::kBlock}) {
      BlockOptions options;
      options.formats = AllOf(format);
      options.activations = activations;
      const RandomBlock block = MakeRandomBlock(random, 48, 80, options);
      const std::vector<float> x = test::RandomVector(random, 9 * 48);
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
            -std::numeric_limits<float>::infinity()}) {
        std::vector<float> dirty = x;
        dirty[4 * 48 + 17] = bad;
        for (const std::string_view backend : {"highway", "reference"}) {
          const std::vector<float> clean = RunBlock(block.view, x, {.backend = backend});
          const std::vector<float> y = RunBlock(block.view, dirty, {.backend = backend});
          for (size_t i = 0; i < y.size(); ++i) {
            const uint32_t want = i / 48 == 4 ? kNanBits : std::bit_cast<uint32_t>(clean[i]);
            ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), want)
                << Name(format) << " " << backend << " token " << i / 48;
          }
        }
      }
    }
  }
}

// The hidden vector overflows though x is finite.
TEST(Forward, HiddenOverflowPoisonsTheToken) {
  Random random;
  for (const WeightFormat format : kWeightFormats) {
    const RandomBlock block = SmallBlock(random, format);
    std::vector<float> x = test::RandomVector(random, 3 * 48);
    for (size_t i = 0; i < 48; ++i) x[48 + i] *= 1e30f;
    const std::vector<float> y = RunBlock(block.view, x, {});
    for (size_t i = 0; i < 48; ++i) {
      EXPECT_TRUE(std::isfinite(y[i]));
      EXPECT_EQ(std::bit_cast<uint32_t>(y[48 + i]), kNanBits) << Name(format);
      EXPECT_TRUE(std::isfinite(y[96 + i]));
    }
  }
}

TEST(Forward, ZeroTokensAndZeroInput) {
  Random random;
  const RandomBlock block = SmallBlock(random);
  EXPECT_TRUE(RunBlock(block.view, {}, {}).empty());
  for (const float y : RunBlock(block.view, std::vector<float>(2 * 48, 0.0f), {}))
    EXPECT_EQ(y, 0.0f);
}

TEST(Forward, InPlace) {
  Random random;
  for (const WeightFormat format : {kQb4w32, WeightFormat{WeightType::kF32, 0}}) {
    const RandomBlock block = SmallBlock(random, format);
    std::vector<float> x = test::RandomVector(random, 300 * 48);
    const std::vector<float> want = RunBlock(block.view, x, {});
    const Ffn ffn = *CreateFfn(block.view, {});
    Workspace workspace = *ffn.Plan(300);
    ASSERT_TRUE(ffn.Forward({x.data(), 300, 48}, {x.data(), 300, 48}, workspace));
    EXPECT_LT(FirstDifference(x, want), 0);
  }
}

// The caller's floating-point environment neither leaks in nor is lost.
TEST(Forward, IgnoresAndRestoresTheEnvironment) {
  Random random;
  const RandomBlock block = SmallBlock(random);
  // Hidden values so small that products of scales are subnormal.
  const std::vector<float> x = test::RandomVector(random, 3 * 48, 1e-18f);
  const std::vector<float> want = RunBlock(block.view, x, {});
  ThreadPool pool = *ThreadPool::Create(2);
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
#endif
  const Ffn ffn = *CreateFfn(block.view, {.pool = &pool});
  Workspace workspace = *ffn.Plan(3);
  std::vector<float> y(3 * 48);
  EXPECT_TRUE(ffn.Forward({x.data(), 3, 48}, {y.data(), 3, 48}, workspace));
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
#if defined(__x86_64__)
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
  std::fesetround(FE_TONEAREST);
  EXPECT_LT(FirstDifference(y, want), 0);
}

// One block, several threads of the caller's, each with its own workspace.
TEST(Forward, WorkspaceSurvivesReuse) {
  Random random;
  const RandomBlock block = SmallBlock(random, {WeightType::kInt4, 128});
  const Ffn ffn = *CreateFfn(block.view, {});
  Workspace workspace = *ffn.Plan(20);
  // Long, short, long: what one call leaves in scratch must not show in the next.
  for (const size_t tokens : {20, 1, 7, 20, 3}) {
    const std::vector<float> x = test::RandomVector(random, tokens * 48);
    std::vector<float> y(x.size());
    ASSERT_TRUE(ffn.Forward({x.data(), tokens, 48}, {y.data(), tokens, 48}, workspace));
    EXPECT_LT(FirstDifference(y, RunBlock(block.view, x, {})), 0) << tokens;
  }
}

// The layers of a model share one workspace; what one leaves must not show in another.
TEST(Forward, OneWorkspaceServesManyBlocks) {
  Random random;
  test::BlockOptions options;
  options.formats = test::AllOf({WeightType::kInt4, 128});
  options.activations = ActivationFormat::kRow;  // which takes more scratch
  const RandomBlock large = test::MakeRandomBlock(random, 257, 400, options);
  Workspace workspace = *(*CreateFfn(large.view, {})).Plan(20);
  for (const auto& [d, m] :
       std::vector<std::pair<size_t, size_t>>{{257, 400}, {33, 65}, {257, 399}}) {
    for (const ActivationFormat activations : {ActivationFormat::kRow, ActivationFormat::kBlock}) {
      options.activations = activations;
      const RandomBlock block = test::MakeRandomBlock(random, d, m, options);
      const Ffn ffn = *CreateFfn(block.view, {});
      const std::vector<float> x = test::RandomVector(random, 20 * d);
      std::vector<float> y(x.size());
      ASSERT_TRUE(ffn.Forward({x.data(), 20, d}, {y.data(), 20, d}, workspace));
      EXPECT_LT(FirstDifference(y, RunBlock(block.view, x, {})), 0) << d << " x " << m;
    }
  }
}

class ForwardErrors : public testing::Test {
 protected:
  void Expect(const Status& status, const std::string& part) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  }
  Random random_;
  RandomBlock block_ = SmallBlock(random_);
  Ffn ffn_ = *CreateFfn(block_.view, {});
  Workspace workspace_ = *ffn_.Plan(4);
  std::vector<float> x_ = std::vector<float>(5 * 48);
  std::vector<float> y_ = std::vector<float>(5 * 48);
};

TEST_F(ForwardErrors, WrongShapes) {
  float* x = x_.data();
  float* y = y_.data();
  Expect(ffn_.Forward({x, 2, 47}, {y, 2, 48}, workspace_),
         "x has 47 columns, the block's d_model is 48");
  Expect(ffn_.Forward({x, 2, 48}, {y, 2, 49}, workspace_), "y has 49 columns");
  Expect(ffn_.Forward({x, 2, 48}, {y, 3, 48}, workspace_), "x has 2 tokens, y 3");
  Expect(ffn_.Forward({x, 2, 48, 40}, {y, 2, 48}, workspace_), "stride of 40");
  Expect(ffn_.Forward({x, 5, 48}, {y, 5, 48}, workspace_),
         "5 tokens, the workspace was planned for 4");
  Expect(ffn_.Forward({nullptr, 1, 48}, {y, 1, 48}, workspace_), "x is null");
}

TEST_F(ForwardErrors, ViewsThatOverlap) {
  std::vector<float> memory(20 * 48);
  float* p = memory.data();
  const std::string told = "x and y overlap in memory but are not the same view";
  Expect(ffn_.Forward({p, 4, 48}, {p + 1, 4, 48}, workspace_), told);
  Expect(ffn_.Forward({p + 1, 4, 48}, {p, 4, 48}, workspace_), told);
  Expect(ffn_.Forward({p, 4, 48}, {p + 48, 4, 48}, workspace_), told);          // a row further
  Expect(ffn_.Forward({p, 4, 48}, {p + 4 * 48 - 1, 4, 48}, workspace_), told);  // by one element
  Expect(ffn_.Forward({p + 4 * 48 - 1, 4, 48}, {p, 4, 48}, workspace_), told);
  Expect(ffn_.Forward({p, 2, 48}, {p, 2, 48, 50}, workspace_), told);
  Expect(ffn_.Forward({p, 3, 48, 96}, {p + 47, 3, 48, 96}, workspace_), told);
  Expect(ffn_.Forward({p + 49, 3, 48, 96}, {p, 3, 48, 96}, workspace_), told);  // the next row
  Expect(ffn_.Forward({p, 3, 48, 96}, {p + 48, 3, 48, 100}, workspace_), told);
}

TEST(Forward, ViewsMayTouch) {
  Random random;
  const RandomBlock block = SmallBlock(random);
  const Ffn ffn = *CreateFfn(block.view, {});
  Workspace workspace = *ffn.Plan(4);
  const std::vector<float> x = test::RandomVector(random, 4 * 48);
  const std::vector<float> want = RunBlock(block.view, x, {});
  // Where x and y begin, and their stride: one after the other, and columns of one matrix.
  for (const auto& [at_x, at_y, stride] : std::vector<std::array<size_t, 3>>{
           {0, 192, 48}, {192, 0, 48}, {0, 48, 96}, {48, 0, 96}, {5, 53, 101}, {0, 144, 96}}) {
    std::vector<float> memory(1000);
    const MatrixView<float> input(memory.data() + at_x, 4, 48, stride);
    const MatrixView<float> output(memory.data() + at_y, 4, 48, stride);
    for (size_t r = 0; r < 4; ++r) std::ranges::copy_n(x.data() + r * 48, 48, input.row(r).data());
    const Status status = ffn.Forward(input, output, workspace);
    ASSERT_TRUE(status) << status.error().message;
    for (size_t r = 0; r < 4; ++r) {
      EXPECT_TRUE(std::ranges::equal(output.row(r), std::span(want).subspan(r * 48, 48)));
    }
  }
}

TEST_F(ForwardErrors, WorkspaceOfASmallerBlock) {
  const RandomBlock small = test::MakeRandomBlock(random_, 16, 32, {});
  Workspace workspace = *(*CreateFfn(small.view, {})).Plan(4);
  Expect(ffn_.Forward({x_.data(), 4, 48}, {y_.data(), 4, 48}, workspace), "for a smaller block");
  const Workspace moved = std::move(workspace);
  Expect(ffn_.Forward({x_.data(), 1, 48}, {y_.data(), 1, 48}, workspace), "moved from");
}

TEST(CreateFfnErrors, NamesWhatIsWrong) {
  Random random;
  RandomBlock block = SmallBlock(random);
  const auto message = [](const Expected<Ffn>& ffn) { return ffn ? "" : ffn.error().message; };
  EXPECT_NE(message(CreateFfn(block.view, {.backend = "cuda"})).find("highway"), std::string::npos);
  EXPECT_NE(message(CreateFfn(block.view, {.target = "AVX9"})).find("AVX9"), std::string::npos);
  BlockView wrong = block.view;
  wrong.d_ff = 81;
  EXPECT_NE(message(CreateFfn(wrong, {})).find("gate is [80, 48], the block needs [81, 48]"),
            std::string::npos);
  wrong = block.view;
  wrong.hidden = ActivationFormat::kFloat;
  EXPECT_NE(message(CreateFfn(wrong, {})).find("do not suit"), std::string::npos);
}

}  // namespace
}  // namespace sluice
