// Whole blocks by the xnnpack backend against the same weights in double precision.
#include "src/backends/xnnpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xnnpack.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/backends/backend.h"
#include "src/backends/xnnpack_check.h"
#include "src/base/aligned_buffer.h"
#include "src/kernels/kernels.h"
#include "tests/support/double_block.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace {

// XNNPACK allocates through what its first xnn_initialize is given: here, malloc with a counter.
std::atomic<size_t> xnnpack_allocations = 0;

void* Allocate(void*, size_t size) {
  ++xnnpack_allocations;
  return std::malloc(size);
}
void* Reallocate(void*, void* p, size_t size) {
  ++xnnpack_allocations;
  return std::realloc(p, size);
}
void Deallocate(void*, void* p) { std::free(p); }
void* AlignedAllocate(void*, size_t alignment, size_t size) {
  ++xnnpack_allocations;
  return std::aligned_alloc(alignment, sluice::RoundUp(size, alignment));
}

const xnn_allocator kCountingAllocator = {nullptr,    Allocate,        Reallocate,
                                          Deallocate, AlignedAllocate, Deallocate};
const bool kCounting = xnn_initialize(&kCountingAllocator) == xnn_status_success;

}  // namespace

namespace sluice {
namespace {

using test::DoubleBlock;
using test::MakeRandomBlock;
using test::Random;
using test::RandomBlock;
using test::RandomVector;
using testing::HasSubstr;
using testing::Not;

constexpr WeightFormat kF32 = {WeightType::kF32, 0};
constexpr WeightFormat kQc8w = {WeightType::kInt8, 0};
constexpr WeightFormat kQc4w = {WeightType::kInt4, 0};
constexpr WeightFormat kQb4w = {WeightType::kInt4, 32};
constexpr WeightFormat kSupported[] = {
    kF32, kQc8w, kQc4w, kQb4w, {WeightType::kInt4, 64}, {WeightType::kInt4, 128}};

constexpr double kFloatTolerance = 1e-5;
constexpr double kQuantizedTolerance = 0.05;

std::unique_ptr<BlockRunner> Create(const BlockView& block, const ThreadPool* pool = nullptr) {
  auto runner = CreateXnnpackRunner(block, {{}, pool});
  EXPECT_TRUE(runner) << runner.error().message;
  return runner ? *std::move(runner) : nullptr;
}

void RunBlock(const BlockRunner& runner, MatrixView<const float> x, MatrixView<float> y,
              bool add_to_residual = false) {
  const AlignedBuffer scratch = AlignedBuffer::Create(runner.ScratchBytes(x.rows)).value();
  std::ranges::fill(scratch.span(), std::byte{0xFF});  // NaN wherever nothing is written
  const Pass pass = {x, y, add_to_residual, scratch.span()};
  runner.GateUp(pass);
  runner.Down(pass);
}

std::vector<float> Forward(const BlockRunner& runner, std::span<const float> x, size_t d_model) {
  const size_t tokens = x.size() / d_model;
  std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
  RunBlock(runner, {x.data(), tokens, d_model}, {y.data(), tokens, d_model});
  return y;
}

// The block's error for `tokens` random tokens.
double Error(const RandomBlock& block, size_t tokens, Random& random,
             const ThreadPool* pool = nullptr) {
  const auto runner = Create(block.view, pool);
  if (runner == nullptr) return std::numeric_limits<double>::infinity();
  const size_t d_model = block.view.d_model;
  const std::vector<float> x = RandomVector(random, tokens * d_model);
  return test::RelativeL2(DoubleBlock::From(block.view).Forward(x), Forward(*runner, x, d_model));
}

double Tolerance(WeightFormat format) {
  return format.quantized() ? kQuantizedTolerance : kFloatTolerance;
}

TEST(Xnnpack, AnySizeInEveryFormat) {
  constexpr std::pair<size_t, size_t> kSizes[] = {{1, 1},   {15, 17},   {17, 31},  {31, 33},
                                                  {33, 15}, {172, 576}, {576, 172}};
  Random random;
  for (const WeightFormat format : kSupported) {
    for (const auto& [d_model, d_ff] : kSizes) {
      const RandomBlock block =
          MakeRandomBlock(random, d_model, d_ff, {.formats = test::AllOf(format)});
      EXPECT_LE(Error(block, 9, random), Tolerance(format))
          << Name(format) << ", d " << d_model << ", m " << d_ff;
    }
  }
}

TEST(Xnnpack, SmolLm2Size) {
  Random random;
  // 128 does not divide 576.
  for (const WeightFormat format : {kQc8w, kQb4w, WeightFormat{WeightType::kInt4, 128}}) {
    const RandomBlock block = MakeRandomBlock(random, 576, 1536, {.formats = test::AllOf(format)});
    EXPECT_LE(Error(block, 2, random), Tolerance(format)) << Name(format);
  }
}

TEST(Xnnpack, MixedFormats) {
  constexpr PerMatrix<WeightFormat> kMixed[] = {{{kQb4w, {WeightType::kInt4, 128}, kQc8w}},
                                                {{kF32, kQc8w, kQb4w}},
                                                {{kQc8w, kF32, kF32}},
                                                {{kF32, kF32, kQc4w}}};
  Random random;
  for (const auto& formats : kMixed) {
    const RandomBlock block = MakeRandomBlock(random, 100, 172, {.formats = formats});
    EXPECT_LE(Error(block, 5, random), kQuantizedTolerance) << Name(formats[Matrix::kGate]);
  }
}

TEST(Xnnpack, EveryActivationGatedAndNotWithAndWithoutBiases) {
  Random random;
  for (const WeightFormat format : {kF32, kQc8w, kQb4w}) {
    for (const Activation activation : kActivations) {
      for (const bool gated : {false, true}) {
        for (const bool biases : {false, true}) {
          const RandomBlock block = MakeRandomBlock(random, 65, 130,
                                                    {.formats = test::AllOf(format),
                                                     .activation = activation,
                                                     .gated = gated,
                                                     .biases = biases});
          EXPECT_LE(Error(block, 7, random), Tolerance(format))
              << Name(format) << ' ' << Name(activation) << (gated ? " gated" : "")
              << (biases ? " biases" : "");
        }
      }
    }
  }
}

// Rounding of the hidden vector may tip by one step between kernels for one token and for many; a
// row that XNNPACK leaves out is wrong by its whole length.
TEST(Xnnpack, EveryTokenOfABatchOfAnySizeIsAsAlone) {
  constexpr size_t kTokens = 64;
  constexpr size_t kModel = 40;
  Random random;
  for (const WeightFormat format : kSupported) {
    const RandomBlock block = MakeRandomBlock(random, kModel, 96, {.formats = test::AllOf(format)});
    const auto runner = Create(block.view);
    ASSERT_NE(runner, nullptr);
    const std::vector<float> x = RandomVector(random, kTokens * kModel);
    std::vector<std::vector<double>> alone;
    for (size_t t = 0; t < kTokens; ++t) {
      const std::vector<float> y =
          Forward(*runner, std::span(x).subspan(t * kModel, kModel), kModel);
      alone.emplace_back(y.begin(), y.end());
    }
    for (size_t tokens = 1; tokens <= kTokens; ++tokens) {
      const std::vector<float> y = Forward(*runner, std::span(x).first(tokens * kModel), kModel);
      for (size_t t = 0; t < tokens; ++t) {
        ASSERT_LE(test::RelativeL2(alone[t], std::span(y).subspan(t * kModel, kModel)),
                  format.quantized() ? 0.02 : kFloatTolerance)
            << Name(format) << ", token " << t << " of " << tokens;
      }
    }
  }
}

TEST(Xnnpack, AnyNumberOfThreads) {
  Random random;
  // One token's hidden vector is cut into two tasks.
  const RandomBlock block =
      MakeRandomBlock(random, 130, 1100, {.formats = {{kQc8w, kQb4w, kQb4w}}, .biases = true});
  for (const size_t threads : {1, 2, 3, 4}) {
    const ThreadPool pool = ThreadPool::Create(threads).value();
    for (const size_t tokens : {1, 6}) {
      EXPECT_LE(Error(block, tokens, random, &pool), kQuantizedTolerance)
          << threads << " threads, " << tokens << " tokens";
    }
  }
}

TEST(Xnnpack, AddsToTheResidual) {
  Random random;
  const RandomBlock block =
      MakeRandomBlock(random, 40, 70, {.formats = test::AllOf(kQb4w), .biases = true});
  const auto runner = Create(block.view);
  ASSERT_NE(runner, nullptr);
  const std::vector<float> x = RandomVector(random, 3 * 40);
  const std::vector<float> stored = Forward(*runner, x, 40);
  const std::vector<float> residual = RandomVector(random, 3 * 40);
  std::vector<float> y = residual;
  RunBlock(*runner, {x.data(), 3, 40}, {y.data(), 3, 40}, /*add_to_residual=*/true);
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], residual[i] + stored[i]);
}

bool AllCanonicalNan(std::span<const float> row) {
  return std::ranges::all_of(row,
                             [](float v) { return std::bit_cast<uint32_t>(v) == kCanonicalNan; });
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST(Xnnpack, ATokenThatIsNotFinitePoisonsItsOwnRowOnly) {
  constexpr size_t kModel = 40;
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  Random random;
  for (const WeightFormat format : kSupported) {
    for (const bool residual : {false, true}) {
      const RandomBlock block =
          MakeRandomBlock(random, kModel, 70, {.formats = test::AllOf(format)});
      const auto runner = Create(block.view);
      ASSERT_NE(runner, nullptr);
      std::vector<float> x = RandomVector(random, 5 * kModel);
      std::vector<float> clean(x.size(), 1.0f);
      RunBlock(*runner, {x.data(), 5, kModel}, {clean.data(), 5, kModel}, residual);
      for (size_t i = 0; i < 3; ++i) x[(i + 1) * kModel + 13 * i] = kBad[i];
      std::vector<float> y(x.size(), 1.0f);
      RunBlock(*runner, {x.data(), 5, kModel}, {y.data(), 5, kModel}, residual);
      for (size_t t = 0; t < 5; ++t) {
        const auto row = std::span(y).subspan(t * kModel, kModel);
        if (t >= 1 && t <= 3) {
          EXPECT_TRUE(AllCanonicalNan(row)) << Name(format) << ", token " << t;
        } else {
          EXPECT_TRUE(SameBits(row, std::span(clean).subspan(t * kModel, kModel)))
              << Name(format) << ", token " << t;
        }
      }
    }
  }
}

// Every x is finite, but the square of what up makes of token 1 is not.
TEST(Xnnpack, AHiddenVectorThatOverflowsPoisonsItsOwnRowOnly) {
  constexpr size_t kModel = 33;
  constexpr size_t kHidden = 1100;  // more than one task combines
  Random random;
  for (const WeightFormat format : {kF32, kQc8w, kQb4w}) {
    const RandomBlock block = MakeRandomBlock(
        random, kModel, kHidden,
        {.formats = test::AllOf(format), .activation = Activation::kRelu2, .gated = false});
    const auto runner = Create(block.view);
    ASSERT_NE(runner, nullptr);
    std::vector<float> x = RandomVector(random, 3 * kModel);
    const std::vector<float> clean = Forward(*runner, x, kModel);
    for (size_t k = 0; k < kModel; ++k) x[kModel + k] *= 1e25f;
    const std::vector<float> y = Forward(*runner, x, kModel);
    for (size_t t = 0; t < 3; ++t) {
      const auto row = std::span(y).subspan(t * kModel, kModel);
      if (t == 1) {
        EXPECT_TRUE(AllCanonicalNan(row)) << Name(format);
      } else {
        EXPECT_TRUE(SameBits(row, std::span(clean).subspan(t * kModel, kModel))) << Name(format);
      }
    }
  }
}

// A page with an unreadable one behind it.
class GuardedPage {
 public:
  GuardedPage() : size_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* p = mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin_ = static_cast<std::byte*>(p);
    mprotect(begin_ + size_, size_, PROT_NONE);
  }
  ~GuardedPage() { munmap(begin_, 2 * size_); }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;

  // The last n floats before the guard.
  std::span<float> Last(size_t n) const {
    return {reinterpret_cast<float*>(begin_ + size_) - n, n};
  }

 private:
  size_t size_;
  std::byte* begin_;
};

// XNNPACK reads beyond its inputs, the backend must not read beyond the caller's; and what lies
// between the rows of x and y is neither read nor written.
TEST(Xnnpack, TouchesNothingBesideTheRows) {
  constexpr size_t kModel = 33;
  constexpr size_t kStride = 37;
  constexpr size_t kTokens = 3;
  constexpr size_t kSpan = (kTokens - 1) * kStride + kModel;
  Random random;
  for (const WeightFormat format : kSupported) {
    const RandomBlock block = MakeRandomBlock(random, kModel, 70, {.formats = test::AllOf(format)});
    const auto runner = Create(block.view);
    ASSERT_NE(runner, nullptr);
    const std::vector<float> x = RandomVector(random, kTokens * kModel);
    const std::vector<float> want = Forward(*runner, x, kModel);
    const GuardedPage x_page;
    const GuardedPage y_page;
    const std::span<float> gapped = x_page.Last(kSpan);
    const std::span<float> y = y_page.Last(kSpan);
    std::ranges::fill(gapped, std::numeric_limits<float>::quiet_NaN());
    std::ranges::fill(y, 123.0f);
    for (size_t t = 0; t < kTokens; ++t) {
      std::ranges::copy(std::span(x).subspan(t * kModel, kModel), gapped.begin() + t * kStride);
    }
    RunBlock(*runner, {gapped.data(), kTokens, kModel, kStride},
             {y.data(), kTokens, kModel, kStride});
    for (size_t i = 0; i < kSpan; ++i) {
      const size_t t = i / kStride;
      const size_t k = i % kStride;
      EXPECT_EQ(y[i], k < kModel ? want[t * kModel + k] : 123.0f);
    }
  }
}

TEST(Xnnpack, ForwardAllocatesNothing) {
  ASSERT_TRUE(kCounting);
  Random random;
  for (const WeightFormat format : kSupported) {
    const RandomBlock block = MakeRandomBlock(random, 40, 70, {.formats = test::AllOf(format)});
    const size_t before_creation = xnnpack_allocations;
    const auto runner = Create(block.view);
    ASSERT_NE(runner, nullptr);
    const size_t before = xnnpack_allocations;
    EXPECT_GT(before, before_creation) << "the counter does not count";
    const std::vector<float> x = RandomVector(random, 17 * 40);
    for (const size_t tokens : {1, 17, 3, 1}) {
      Forward(*runner, std::span(x).first(tokens * 40), 40);
    }
    EXPECT_EQ(xnnpack_allocations, before) << Name(format);
  }
}

// Passes long enough that the system switches threads in the middle of many.
TEST(Xnnpack, PassesOnOneRunnerTakeTurns) {
  constexpr size_t kModel = 130;
  constexpr size_t kTokens = 64;
  Random random;
  const RandomBlock block =
      MakeRandomBlock(random, kModel, 1000, {.formats = test::AllOf(kF32), .gated = false});
  const auto runner = Create(block.view);
  ASSERT_NE(runner, nullptr);
  std::atomic<int> wrong = 0;
  std::barrier start(2);
  const auto repeat = [&](const std::vector<float>& x) {
    const std::vector<float> want = Forward(*runner, x, kModel);
    start.arrive_and_wait();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    do {
      if (!SameBits(Forward(*runner, x, kModel), want)) ++wrong;
    } while (std::chrono::steady_clock::now() < end);
  };
  const std::vector<float> x = RandomVector(random, kTokens * kModel);
  const std::vector<float> other_x = RandomVector(random, kTokens * kModel);
  std::thread other(repeat, std::cref(other_x));
  repeat(x);
  other.join();
  EXPECT_EQ(wrong, 0);
}

std::string Refusal(const BlockView& block, const RunnerOptions& options = {}) {
  const auto runner = CreateXnnpackRunner(block, options);
  if (runner) return "not refused";
  EXPECT_EQ(runner.error().code, ErrorCode::kUnsupported);
  return runner.error().message;
}

TEST(Xnnpack, RefusalsNameMatrixFormatAndWhatIsMissing) {
  Random random;
  const auto block = [&](WeightFormat gate, WeightFormat up, WeightFormat down) {
    return MakeRandomBlock(random, 33, 40, {.formats = {{gate, up, down}}});
  };
  constexpr WeightFormat kQb8w = {WeightType::kInt8, 32};
  constexpr WeightFormat kBf16 = {WeightType::kBf16, 0};
  EXPECT_EQ(Refusal(block(kQc8w, kQc8w, kQb8w).view),
            "xnnpack: down is qb8w:32; XNNPACK has no fully-connected operator for blocked int8");
  EXPECT_EQ(Refusal(block(kBf16, kQc8w, kQc8w).view),
            "xnnpack: gate is bf16; XNNPACK has no fully-connected operator for bf16 weights");
  EXPECT_THAT(Refusal(block(kF32, kF32, kF32).view, {"AVX2", nullptr}),
              testing::AllOf(HasSubstr("xnnpack: "), HasSubstr("AVX2")));
}

TEST(Xnnpack, RefusesInt8SumsThatCouldOverflow) {
  Random random;
  const RandomBlock block =
      MakeRandomBlock(random, 2, 65537, {.formats = {{kF32, kF32, kQc8w}}, .gated = false});
  EXPECT_EQ(Refusal(block.view),
            "xnnpack: down is qc8w with 65537 columns; XNNPACK's int32 sums are exact up to 65536");
}

TEST(Xnnpack, DescribesItsActivationsAndWhatItSubstitutes) {
  Random random;
  const auto describe = [&](WeightFormat format) {
    const RandomBlock block = MakeRandomBlock(random, 33, 40, {.formats = test::AllOf(format)});
    const auto runner = Create(block.view);
    return runner == nullptr ? std::string() : runner->Describe();
  };
  EXPECT_THAT(describe(kQb4w),
              testing::AllOf(HasSubstr("xnnpack"), HasSubstr("its own qd8, per token"),
                             Not(HasSubstr("int8 operator"))));
  EXPECT_THAT(describe(kF32), testing::AllOf(HasSubstr("activations: f32"), Not(HasSubstr("qd8"))));
  if (XnnKernelWorks(XnnKernel::kQc4w)) {
    EXPECT_THAT(describe(kQc4w), Not(HasSubstr("int8 operator")));
  } else {
    EXPECT_THAT(describe(kQc4w), HasSubstr("down qc4w by its int8 operator"));
  }
}

}  // namespace
}  // namespace sluice
