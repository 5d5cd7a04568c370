// combine and finish on every target against the scalar reference.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "src/kernels/kernels.h"
#include "src/kernels/reference.h"
#include "tests/support/kernel_targets.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice {
namespace {

using test::Agrees;
using test::AttainableKernels;
using test::Random;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kSizes[] = {1, 3, 15, 16, 17, 31, 32, 33, 172};

TEST(Combine, EqualsReferenceOnEveryTarget) {
  Random random;
  for (const size_t n : kSizes) {
    // Reading or writing one element too many meets NaN or the guard.
    std::vector<std::vector<float>> inputs;
    for (int i = 0; i < 4; ++i) {
      inputs.push_back(test::RandomVector(random, n + 2, 4.0f));
      inputs.back()[n + 1] = kNan;
    }
    for (const Activation activation : kActivations) {
      for (const bool gated : {true, false}) {
        for (const bool biases : {true, false}) {
          const auto run = [&](const Kernels& kernels) {
            std::vector<float> out(n + 2, 77.0f);
            CombineArgs args;
            args.activation = activation;
            args.gate = gated ? inputs[0].data() + 1 : nullptr;
            args.up = inputs[1].data() + 1;
            args.gate_bias = biases ? inputs[2].data() + 1 : nullptr;
            args.up_bias = biases ? inputs[3].data() + 1 : nullptr;
            args.out = out.data() + 1;
            args.n = n;
            EXPECT_TRUE(kernels.combine(args)) << kernels.target;
            return out;
          };
          const std::vector<float> want = run(reference::ReferenceKernels());
          for (const Kernels* kernels : AttainableKernels()) {
            EXPECT_TRUE(Agrees(*kernels, run(*kernels), want))
                << kernels->target << " " << Name(activation) << " n=" << n << " gated=" << gated;
          }
        }
      }
    }
  }
}

std::vector<float> ZeroForNan(std::vector<float> v) {
  for (float& value : v) {
    if (std::isnan(value)) value = 0.0f;
  }
  return v;
}

// As a block does it: gate and up side by side in a token's row, and the result over the gate.
bool CombineInPlace(const Kernels& kernels, std::vector<float>& rows, size_t up_at, size_t n,
                    const float* bias) {
  return kernels.combine({.gate = rows.data(),
                          .up = rows.data() + up_at,
                          .gate_bias = bias,
                          .up_bias = bias,
                          .out = rows.data(),
                          .n = n,
                          .tokens = rows.size() / kDotStride,
                          .stride = kDotStride,
                          .out_stride = kDotStride});
}

TEST(Combine, TokensInPlaceEqualReference) {
  Random random;
  constexpr size_t kTokens = 5;
  constexpr size_t kUpAt = 32;
  for (const size_t n : {1, 15, 17, 32}) {
    std::vector<float> rows = test::RandomVector(random, kTokens * kDotStride, 4.0f);
    const std::vector<float> bias = test::RandomVector(random, n);
    for (size_t t = 0; t < kTokens; ++t) {  // what lies behind is not read
      for (size_t i = n; i < kUpAt; ++i) {
        rows[t * kDotStride + i] = kNan;
        rows[t * kDotStride + kUpAt + i] = kNan;
      }
    }
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      std::vector<float> want = rows;
      for (size_t t = 0; t < kTokens; ++t) {
        float* row = want.data() + t * kDotStride;
        reference::Combine(
            {.gate = row, .up = row + kUpAt, .gate_bias = b, .up_bias = b, .out = row, .n = n});
      }
      for (const Kernels* kernels : AttainableKernels()) {
        std::vector<float> got = rows;
        EXPECT_TRUE(CombineInPlace(*kernels, got, kUpAt, n, b)) << kernels->target;
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(std::isnan(got[i]), std::isnan(want[i])) << kernels->target << " n=" << n;
        }
        EXPECT_TRUE(Agrees(*kernels, ZeroForNan(got), ZeroForNan(want)))
            << kernels->target << " n=" << n;
      }
    }
    rows[(kTokens - 1) * kDotStride + kUpAt] = kInfinity;
    for (const Kernels* kernels : AttainableKernels()) {
      std::vector<float> got = rows;
      EXPECT_FALSE(CombineInPlace(*kernels, got, kUpAt, n, nullptr)) << kernels->target;
    }
  }
}

TEST(Combine, ReportsWhatIsNotFinite) {
  for (const Kernels* kernels : AttainableKernels()) {
    for (const size_t n : kSizes) {
      for (size_t at = 0; at < n; ++at) {
        for (const float bad : {kNan, kInfinity, -kInfinity}) {
          const std::vector<float> gate(n, 1.0f);
          std::vector<float> up(n, 1.0f);
          up[at] = bad;
          std::vector<float> out(n);
          CombineArgs args;
          args.gate = gate.data();
          args.up = up.data();
          args.out = out.data();
          args.n = n;
          EXPECT_FALSE(kernels->combine(args)) << kernels->target << " n=" << n << " at=" << at;
        }
      }
    }
  }
}

// A gate of NaN must not be lost in a minimum or maximum.
TEST(Combine, NanOfTheGateIsSeen) {
  for (const Activation activation : kActivations) {
    for (const Kernels* kernels : AttainableKernels()) {
      const std::vector<float> gate = {1.0f, -kNan, 2.0f};
      const std::vector<float> up(3, 1.0f);
      std::vector<float> out(3);
      CombineArgs args;
      args.activation = activation;
      args.gate = gate.data();
      args.up = up.data();
      args.out = out.data();
      args.n = 3;
      EXPECT_FALSE(kernels->combine(args)) << kernels->target << " " << Name(activation);
      EXPECT_TRUE(std::isnan(out[1])) << kernels->target << " " << Name(activation);
      EXPECT_TRUE(std::isfinite(out[0]) && std::isfinite(out[2]));
    }
  }
}

TEST(Finish, EqualsReferenceAndWritesNoFurther) {
  Random random;
  for (const size_t n : kSizes) {
    std::vector<float> row = test::RandomVector(random, n + 1);
    const std::vector<float> bias = test::RandomVector(random, n);
    const std::vector<float> residual = test::RandomVector(random, n + 1);
    row[n] = kNan;
    row[n / 2] = std::bit_cast<float>(0xFFC12345u);  // a NaN of somebody's own
    for (const bool with_bias : {true, false}) {
      for (const bool add : {true, false}) {
        for (const bool poisoned : {true, false}) {
          const auto run = [&](const Kernels& kernels) {
            std::vector<float> y = residual;
            const uint32_t nan_token = 1;
            kernels.finish({.row = row.data(),
                            .bias = with_bias ? bias.data() : nullptr,
                            .y = y.data(),
                            .n = n,
                            .add_to_residual = add,
                            .poisoned = poisoned ? &nan_token : nullptr});
            return y;
          };
          const std::vector<float> want = run(reference::ReferenceKernels());
          EXPECT_EQ(std::bit_cast<uint32_t>(want[n / 2]), kCanonicalNan);
          EXPECT_EQ(want[n], residual[n]);
          if (poisoned) {
            for (size_t i = 0; i < n; ++i)
              EXPECT_EQ(std::bit_cast<uint32_t>(want[i]), kCanonicalNan);
          }
          // No fused operation is involved: every target must agree exactly.
          for (const Kernels* kernels : AttainableKernels()) {
            EXPECT_LT(test::FirstDifference(run(*kernels), want), 0)
                << kernels->target << " n=" << n;
          }
        }
      }
    }
  }
}

TEST(Finish, TokensEqualReferenceTokenByToken) {
  Random random;
  const std::vector<uint32_t> poisoned = {0, 1, 0, 0, 7};
  const size_t tokens = poisoned.size();
  for (const size_t n : {1, 17, 64}) {
    const size_t y_stride = n + 5;
    const std::vector<float> rows = test::RandomVector(random, tokens * kDotStride);
    const std::vector<float> bias = test::RandomVector(random, n);
    const std::vector<float> residual = test::RandomVector(random, tokens * y_stride);
    std::vector<float> want = residual;
    for (size_t t = 0; t < tokens; ++t) {
      reference::Finish({.row = rows.data() + t * kDotStride,
                         .bias = bias.data(),
                         .y = want.data() + t * y_stride,
                         .n = n,
                         .add_to_residual = true,
                         .poisoned = &poisoned[t]});
    }
    for (const Kernels* kernels : AttainableKernels()) {
      std::vector<float> got = residual;
      kernels->finish({.row = rows.data(),
                       .bias = bias.data(),
                       .y = got.data(),
                       .n = n,
                       .add_to_residual = true,
                       .poisoned = poisoned.data(),
                       .tokens = tokens,
                       .row_stride = kDotStride,
                       .y_stride = y_stride});
      EXPECT_LT(test::FirstDifference(got, want), 0) << kernels->target << " n=" << n;
    }
  }
}

}  // namespace
}  // namespace sluice
