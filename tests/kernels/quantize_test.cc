// Activation quantization on every target against the scalar reference, byte for byte.
#include <gtest/gtest.h>

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

using test::AttainableKernels;
using test::Random;

struct Quantized {
  bool finite = false;
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<int32_t> offsets;
  int32_t total = 0;
  friend bool operator==(const Quantized&, const Quantized&) = default;
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int8_t kUntouched = 99;

Quantized Blocks(const Kernels& kernels, const float* x, size_t n) {
  const size_t blocks = DivCeil(n, kActivationBlock);
  Quantized q;
  q.values.assign(blocks * kActivationBlock + 1, kUntouched);
  q.scales.assign(blocks, -1.0f);
  q.offsets.assign(blocks, -1);
  q.finite = kernels.quantize_blocks({.x = x,
                                      .n = n,
                                      .values = q.values.data(),
                                      .scales = q.scales.data(),
                                      .offsets = q.offsets.data()});
  return q;
}

Quantized Row(const Kernels& kernels, const float* x, size_t n) {
  const size_t blocks = DivCeil(n, kActivationBlock);
  Quantized q;
  q.values.assign(blocks * kActivationBlock + 1, kUntouched);
  q.scales.assign(1, -1.0f);
  q.offsets.assign(blocks, -1);
  q.finite =
      kernels.quantize_row(x, n, q.values.data(), q.scales.data(), q.offsets.data(), &q.total);
  return q;
}

// (700 values are more blocks than are quantized side by side, and the last is a part of one.)
constexpr size_t kSizes[] = {1, 15, 16, 17, 31, 32, 33, 63, 65, 172, 576, 700, 1536};

TEST(Quantize, EqualsReferenceOnEveryTarget) {
  Random random;
  for (const size_t n : kSizes) {
    // Behind the row lies NaN, before it an odd address.
    std::vector<float> memory = test::RandomVector(random, n + 2, 3.0f);
    memory[n + 1] = std::numeric_limits<float>::quiet_NaN();
    const float* x = memory.data() + 1;
    const Quantized blocks = Blocks(reference::ReferenceKernels(), x, n);
    const Quantized row = Row(reference::ReferenceKernels(), x, n);
    for (const Kernels* kernels : AttainableKernels()) {
      EXPECT_EQ(Blocks(*kernels, x, n), blocks) << kernels->target << " n=" << n;
      EXPECT_EQ(Row(*kernels, x, n), row) << kernels->target << " n=" << n;
    }
  }
}

// Many rows in one call are what each is by itself, whatever lies between them, and one that is not
// finite spoils no neighbour.
TEST(Quantize, RowsOfOneCallEqualRowsAlone) {
  Random random;
  for (const size_t n : {1, 31, 32, 33, 172}) {
    for (const size_t rows : {1, 2, 15, 16, 17, 33, 128}) {
      const size_t blocks = DivCeil(n, kActivationBlock);
      const size_t stride = n + 3;
      const size_t value_stride = blocks * kActivationBlock + 4;
      std::vector<float> x = test::RandomVector(random, rows * stride, 3.0f);
      for (size_t r = 0; r < rows; ++r) x[r * stride + n] = kNan;
      for (const bool spoilt : {false, true}) {
        if (spoilt) x[rows / 2 * stride + n / 2] = kNan;
        for (const Kernels* kernels : AttainableKernels()) {
          std::vector<int8_t> values(rows * value_stride, kUntouched);
          std::vector<float> scales(rows * (blocks + 1), -1.0f);
          std::vector<int32_t> offsets(rows * (blocks + 2), -1);
          EXPECT_EQ(kernels->quantize_blocks({.x = x.data(),
                                              .n = n,
                                              .values = values.data(),
                                              .scales = scales.data(),
                                              .offsets = offsets.data(),
                                              .rows = rows,
                                              .x_stride = stride,
                                              .value_stride = value_stride,
                                              .scale_stride = blocks + 1,
                                              .offset_stride = blocks + 2}),
                    !spoilt);
          for (size_t r = 0; r < rows; ++r) {
            Quantized got;
            const auto part = [&](const auto& all, size_t step, size_t count) {
              return std::vector(all.begin() + static_cast<ptrdiff_t>(r * step),
                                 all.begin() + static_cast<ptrdiff_t>(r * step + count));
            };
            got.values = part(values, value_stride, blocks * kActivationBlock + 1);
            got.scales = part(scales, blocks + 1, blocks);
            got.offsets = part(offsets, blocks + 2, blocks);
            got.finite = !spoilt || r != rows / 2;
            EXPECT_EQ(got, Blocks(reference::ReferenceKernels(), x.data() + r * stride, n))
                << kernels->target << " n=" << n << " row " << r << " of " << rows;
          }
        }
      }
    }
  }
}

TEST(Quantize, ErrorIsHalfAStepAndOffsetsAreSums) {
  Random random;
  for (const size_t n : kSizes) {
    const std::vector<float> x = test::RandomVector(random, n);
    for (const Kernels* kernels : AttainableKernels()) {
      const Quantized q = Blocks(*kernels, x.data(), n);
      EXPECT_TRUE(q.finite);
      EXPECT_EQ(q.values.back(), kUntouched) << kernels->target << " wrote past the last block";
      for (size_t b = 0; b < q.scales.size(); ++b) {
        int32_t sum = 0;
        for (size_t i = b * kActivationBlock; i < (b + 1) * kActivationBlock; ++i) {
          sum += q.values[i];
          if (i >= n) {
            EXPECT_EQ(q.values[i], 0);
            continue;
          }
          // Half a step, and one rounding each of the factor, the product and the scale.
          EXPECT_NEAR(q.values[i] * q.scales[b], x[i], q.scales[b] * (0.5 + 127 * 3 * 0x1p-24));
        }
        EXPECT_EQ(q.offsets[b], -8 * sum);
      }
    }
  }
}

TEST(Quantize, TiesGoToEven) {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;  // scale 1
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[4] = 125.5f;
  for (const Kernels* kernels : AttainableKernels()) {
    const Quantized q = Blocks(*kernels, x.data(), 32);
    EXPECT_EQ(q.values[1], 0) << kernels->target;
    EXPECT_EQ(q.values[2], 2) << kernels->target;
    EXPECT_EQ(q.values[3], -2) << kernels->target;
    EXPECT_EQ(q.values[4], 126) << kernels->target;
  }
}

// CASES H6, H7: zeros and near-zeros give zeros and scale 0, never an infinite factor.
TEST(Quantize, NothingAndNearlyNothing) {
  for (const float tiny :
       {0.0f, -0.0f, 1e-39f, std::numeric_limits<float>::denorm_min(), 0x1p-101f}) {
    std::vector<float> x(40, 0.0f);
    x[35] = tiny;
    for (const Kernels* kernels : AttainableKernels()) {
      for (const Quantized& q : {Blocks(*kernels, x.data(), 40), Row(*kernels, x.data(), 40)}) {
        EXPECT_TRUE(q.finite);
        for (const float scale : q.scales) EXPECT_EQ(scale, 0.0f) << kernels->target;
        for (size_t i = 0; i < 64; ++i) EXPECT_EQ(q.values[i], 0) << kernels->target;
      }
    }
  }
  std::vector<float> x(32, 0.0f);
  x[3] = kMinAmax;  // the first that counts
  for (const Kernels* kernels : AttainableKernels()) {
    EXPECT_EQ(Blocks(*kernels, x.data(), 32).values[3], 127) << kernels->target;
  }
}

TEST(Quantize, HugeValuesStayFinite) {
  std::vector<float> x(32, 1.0f);
  x[0] = -std::numeric_limits<float>::max();
  for (const Kernels* kernels : AttainableKernels()) {
    const Quantized q = Blocks(*kernels, x.data(), 32);
    EXPECT_TRUE(q.finite);
    EXPECT_EQ(q.values[0], -127);
    EXPECT_EQ(q.values[1], 0);
    EXPECT_TRUE(std::isfinite(q.scales[0]));
  }
}

TEST(Quantize, ReportsWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const size_t n : {1, 31, 33, 172}) {
      for (size_t at = 0; at < n; ++at) {
        std::vector<float> x(n, 1.0f);
        x[at] = bad;
        for (const Kernels* kernels : AttainableKernels()) {
          // Zeros in place of what cannot be quantized, so that scratch holds the same on every
          // CPU.
          EXPECT_FALSE(Blocks(*kernels, x.data(), n).finite) << kernels->target << " at " << at;
          EXPECT_EQ(Blocks(*kernels, x.data(), n),
                    Blocks(reference::ReferenceKernels(), x.data(), n))
              << kernels->target << " at " << at;
          EXPECT_FALSE(Row(*kernels, x.data(), n).finite) << kernels->target << " at " << at;
          EXPECT_EQ(Row(*kernels, x.data(), n), Row(reference::ReferenceKernels(), x.data(), n))
              << kernels->target << " at " << at;
          EXPECT_FALSE(kernels->all_finite(x.data(), n)) << kernels->target << " at " << at;
        }
      }
    }
  }
  const std::vector<float> good(172, -std::numeric_limits<float>::max());
  for (const Kernels* kernels : AttainableKernels()) {
    EXPECT_TRUE(kernels->all_finite(good.data(), good.size())) << kernels->target;
  }
}

}  // namespace
}  // namespace sluice
