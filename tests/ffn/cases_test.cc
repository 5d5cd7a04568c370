// Inputs that broke other libraries, with the right values (CASES H1, H2, H3, H5, H11): through the
// whole path from plain integers to y.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/kernels/kernels.h"
#include "tests/support/kernel_targets.h"
#include "tests/support/run_block.h"

namespace sluice {
namespace {

// W·x for a plain matrix, through dot of every target.
std::vector<float> Multiply(const Kernels& kernels, const QuantizedMatrix& matrix,
                            const std::vector<float>& x, ActivationFormat format, size_t tokens) {
  const PackedMatrix packed = *Pack(matrix);
  const PackedMatrixView view = packed.view();
  ActivationRows rows;
  rows.format = format;
  rows.cols = matrix.cols;
  rows.value_stride = RoundUp(matrix.cols, kMaxBlock);
  rows.offset_stride = rows.value_stride / kActivationBlock;
  rows.scale_stride = rows.offset_stride;
  std::vector<int8_t> values(tokens * rows.value_stride);
  std::vector<float> scales(tokens * rows.scale_stride);
  std::vector<int32_t> offsets(tokens * rows.offset_stride);
  std::vector<int32_t> totals(tokens);
  rows.values = values.data();
  rows.scales = scales.data();
  rows.offsets = offsets.data();
  rows.total_offset = totals.data();
  for (size_t t = 0; t < tokens; ++t) {
    int8_t* v = rows.values + t * rows.value_stride;
    float* s = rows.scales + t * rows.scale_stride;
    int32_t* o = rows.offsets + t * rows.offset_stride;
    if (format == ActivationFormat::kRow) {
      kernels.quantize_row(x.data(), matrix.cols, v, s, o, rows.total_offset + t);
    } else {
      kernels.quantize_blocks(
          {.x = x.data(), .n = matrix.cols, .values = v, .scales = s, .offsets = o});
    }
  }
  DotArgs args;
  args.layout = view.layout;
  args.num_strips = 1;
  args.weights[0] = view.strip_weights(0);
  args.scales[0] = view.strip_scales(0);
  args.x = &rows;
  args.tokens = tokens;
  alignas(64) float out[8 * kDotStride];
  args.out = out;
  kernels.dot(args);
  std::vector<float> y;
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t r = 0; r < matrix.rows; ++r) y.push_back(out[t * kDotStride + r]);
  }
  return y;
}

QuantizedMatrix Constant(WeightFormat format, size_t rows, size_t cols, int value, float scale) {
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.integers.assign(rows * cols, static_cast<int8_t>(value));
  matrix.scales.assign(rows * matrix.blocks(), scale);
  return matrix;
}

constexpr ActivationFormat kBoth[] = {ActivationFormat::kRow, ActivationFormat::kBlock};

TEST(Cases, H1BlockDoesNotDivideK) {
  for (const Kernels* kernels : test::AttainableKernels()) {
    for (const WeightFormat format : kWeightFormats) {
      if (!format.quantized()) continue;
      for (const size_t cols : {1, 2, 31, 33, 40, 48, 63, 65, 100}) {
        for (const ActivationFormat activation : kBoth) {
          const auto y = Multiply(*kernels, Constant(format, 2, cols, 1, 1.0f),
                                  std::vector<float>(cols, 1.0f), activation, 1);
          for (const float v : y) {
            EXPECT_NEAR(v, cols, cols * 1e-6)
                << kernels->target << " " << Name(format) << " K=" << cols;
          }
        }
      }
    }
  }
}

TEST(Cases, H2OddK) {
  QuantizedMatrix matrix = Constant({WeightType::kInt4, 32}, 2, 3, 0, 1.0f);
  matrix.integers = {1, 2, 3, 4, 5, 6};
  for (const Kernels* kernels : test::AttainableKernels()) {
    for (const ActivationFormat activation : kBoth) {
      const auto y = Multiply(*kernels, matrix, {1, 1, 1}, activation, 1);
      EXPECT_NEAR(y[0], 6, 1e-5) << kernels->target;
      EXPECT_NEAR(y[1], 15, 1e-5) << kernels->target;
    }
  }
}

TEST(Cases, H3ScaleOfTheRightBlock) {
  QuantizedMatrix matrix = Constant({WeightType::kInt4, 128}, 2, 256, 1, 1.0f);
  matrix.scales = {1, 2, 4, 8};
  for (const Kernels* kernels : test::AttainableKernels()) {
    for (const ActivationFormat activation : kBoth) {
      for (const size_t tokens : {1, 8}) {
        const auto y =
            Multiply(*kernels, matrix, std::vector<float>(256, 1.0f), activation, tokens);
        for (size_t t = 0; t < tokens; ++t) {
          EXPECT_NEAR(y[2 * t], 384, 1e-3) << kernels->target << " token " << t;
          EXPECT_NEAR(y[2 * t + 1], 1536, 1e-3) << kernels->target << " token " << t;
        }
      }
    }
  }
}

TEST(Cases, H5NothingSaturates) {
  for (const Kernels* kernels : test::AttainableKernels()) {
    for (const size_t cols : {2, 288, 1536}) {
      for (const int weight : {-8, 7}) {
        const auto y = Multiply(*kernels, Constant({WeightType::kInt4, 0}, 1, cols, weight, 1.0f),
                                std::vector<float>(cols, 127.0f), ActivationFormat::kRow, 1);
        EXPECT_EQ(y[0], static_cast<float>(cols) * weight * 127)
            << kernels->target << " K=" << cols;
      }
      for (const int weight : {-127, 127}) {
        const auto y = Multiply(*kernels, Constant({WeightType::kInt8, 0}, 1, cols, weight, 1.0f),
                                std::vector<float>(cols, -127.0f), ActivationFormat::kRow, 1);
        EXPECT_EQ(y[0], static_cast<float>(cols) * weight * -127)
            << kernels->target << " K=" << cols;
      }
    }
  }
}

// H11: d = m = 1, all weights 1, x = 1: the activation alone decides. H6: a zero matrix gives zero.
TEST(Cases, H11WhichActivation) {
  struct Case {
    Activation activation;
    float x;
    double want;
  };
  for (const Case c : {Case{Activation::kSilu, 1, 0.731059},
                       {Activation::kGeluTanh, 1, 0.841192},
                       {Activation::kGelu, 1, 0.841345},
                       {Activation::kRelu, 1, 1},
                       {Activation::kRelu2, 2, 8}}) {  // 2² times the up branch's 2
    const std::vector<float> one = {1.0f};
    const QuantizedMatrix matrix = EncodeFloat(one, 1, 1, {WeightType::kF32, 0});
    const PackedMatrix packed = *Pack(matrix);
    BlockView block;
    block.d_model = 1;
    block.d_ff = 1;
    block.activation = c.activation;
    for (const Matrix m : kMatrices) block.matrices[m] = packed.view();
    const std::vector<float> y = test::RunBlock(block, {c.x}, {});
    EXPECT_NEAR(y[0], c.want, 1e-6) << Name(c.activation);
  }
}

TEST(Cases, H6ZeroBlocksGiveZero) {
  for (const WeightFormat format : kWeightFormats) {
    if (!format.quantized()) continue;
    QuantizedMatrix matrix = Constant(format, 2, 64, 3, 0.5f);
    // The second half of each row is a zero block; in per-channel formats row 1 is all zero.
    for (size_t r = 0; r < 2; ++r) {
      for (size_t k = 0; k < 64; ++k) {
        const bool zero = format.blocked() ? k >= 32 : r == 1;
        if (zero) matrix.integers[r * 64 + k] = 0;
      }
    }
    if (matrix.blocks() == 2) matrix.scales = {0.5f, 0.0f, 0.5f, 0.0f};
    if (!format.blocked()) matrix.scales = {0.5f, 0.0f};
    for (const Kernels* kernels : test::AttainableKernels()) {
      for (const ActivationFormat activation : kBoth) {
        const auto y = Multiply(*kernels, matrix, std::vector<float>(64, 1.0f), activation, 1);
        EXPECT_NEAR(y[0], format.blocked() ? 48 : 96, 1e-3) << Name(format);
        EXPECT_NEAR(y[1], format.blocked() ? 48 : 0, 1e-3) << Name(format);
      }
    }
  }
}

}  // namespace
}  // namespace sluice
