// Calls dot kernels, for count.py to count what they execute: weights and activations are zeros,
// which changes no count.
//
//   kernel_calls                               each kernel of this CPU once, one token and 16
//   kernel_calls FORMAT TOKENS CALLS           XNNPACK's operator for the same weights
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "src/backends/xnnpack_operators.h"
#include "src/backends/xnnpack_weights.h"
#include "src/base/aligned_buffer.h"
#include "src/format/pack.h"
#include "src/kernels/activation_tiles.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

constexpr size_t kRows = kTileStrips * kStripRows;
constexpr size_t kCols = 512;

auto Check(auto result) {
  if (!result) {
    std::fprintf(stderr, "kernel_calls: %s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

PackedMatrix ZeroMatrix(WeightFormat format) {
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = kRows;
  matrix.cols = kCols;
  matrix.integers.resize(kRows * kCols);
  matrix.scales.assign(kRows * matrix.blocks(), 1.0f);
  return Check(Pack(matrix));
}

void CallKernel(const Kernels& kernels, const PackedMatrixView& matrix, ActivationFormat x,
                size_t tokens) {
  std::vector<int8_t> values(tokens * kCols);
  std::vector<float> scales(tokens * kCols / kActivationBlock);
  std::vector<int32_t> offsets(tokens * kCols / kActivationBlock);
  std::vector<int32_t> totals(tokens);
  ActivationRows rows;
  rows.format = x;
  rows.cols = kCols;
  rows.values = values.data();
  rows.value_stride = kCols;
  rows.scales = scales.data();
  rows.scale_stride = kCols / kActivationBlock;
  rows.offsets = offsets.data();
  rows.offset_stride = kCols / kActivationBlock;
  rows.total_offset = totals.data();
  std::vector<std::byte> tile_data(TilesBytes(tokens, rows));
  const ActivationTiles tiles = {.height = kernels.tile_height(matrix.layout.format, rows.format),
                                 .columns = kernels.tile_columns,
                                 .tokens = tokens,
                                 .blocks = rows.offset_stride,
                                 .data = tile_data.data()};
  AlignedBuffer out = Check(AlignedBuffer::Create(tokens * kDotStride * sizeof(float)));
  DotArgs args;
  args.layout = matrix.layout;
  args.num_strips = kTileStrips;
  for (size_t s = 0; s < kTileStrips; ++s) {
    args.weights[s] = matrix.strip_weights(s);
    args.scales[s] = matrix.strip_scales(s);
  }
  args.x = &rows;
  if (tokens > 1 && tiles.height != 0) args.tiles = &tiles;
  args.tokens = tokens;
  args.out = reinterpret_cast<float*>(out.data());
  kernels.dot(args);
}

void CallKernels() {
  for (const WeightFormat format : kWeightFormats) {
    if (!format.quantized() || (format.blocked() && format.block != kActivationBlock)) continue;
    const PackedMatrix matrix = ZeroMatrix(format);
    for (const RegisteredKernels& entry : AllKernels()) {
      if (!entry.available) continue;
      for (const size_t tokens : {1, 16}) {
        CallKernel(*entry.kernels, matrix.view(), ActivationFormat::kRow, tokens);
        if (!format.blocked()) continue;
        CallKernel(*entry.kernels, matrix.view(), ActivationFormat::kBlock, tokens);
      }
    }
  }
}

void CallXnnpack(WeightFormat format, size_t tokens, size_t calls) {
  if (const Status ready = InitializeXnnpack(); !ready) {
    std::fprintf(stderr, "kernel_calls: %s\n", ready.error().message.c_str());
    std::exit(1);
  }
  const PackedMatrix matrix = ZeroMatrix(format);
  const XnnKernel kernel = Check(XnnKernelFor(Matrix::kUp, matrix.view().layout));
  const XnnMatrix multiply =
      Check(XnnMatrix::Create(Check(ToXnnWeights(Matrix::kUp, matrix.view(), kernel)), kCols));
  const XnnConvert convert = Check(XnnConvert::Create());
  std::vector<float> floats(tokens * kCols + kXnnExtraBytes);
  std::vector<int8_t> values(tokens * kCols + kXnnExtraBytes);
  std::vector<xnn_quantization_params> params(tokens + kXnnExtraParams);
  std::vector<float> y(tokens * kRows);
  const XnnRows rows = {kCols, kCols, floats.data(), values.data(), params.data()};
  bool ran = convert.Run(rows, tokens, nullptr);
  for (size_t i = 0; i < calls; ++i) ran = multiply.Run(rows, tokens, y.data(), nullptr) && ran;
  if (!ran) std::exit(1);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc == 1) {
    sluice::CallKernels();
  } else if (argc == 4) {
    sluice::CallXnnpack(sluice::Check(sluice::ParseWeightFormat(argv[1])), std::stoul(argv[2]),
                        std::stoul(argv[3]));
  } else {
    std::fputs("kernel_calls [FORMAT TOKENS CALLS]\n", stderr);
    return 2;
  }
}
