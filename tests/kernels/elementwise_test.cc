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
            kernels.finish(
                {row.data(), with_bias ? bias.data() : nullptr, y.data(), n, add, poisoned});
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

}  // namespace
}  // namespace sluice
