// Single kernels of every target this CPU has, on data that stays in its caches: what the
// arithmetic costs, apart from memory. Names read kernel/target/format/activations/tokens; counters
// are operations (2 per multiply-add) and weight bytes per second.
//
//   kernels_bench --benchmark_filter='dot/AVX3_DL/qb4w:32/.*'
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "src/kernels/activation_tiles.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

// A typical d_model; four strips of it fit any L2.
constexpr size_t kCols = 2048;

std::vector<float> RandomVector(size_t n) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(engine);
  return values;
}

PackedMatrix RandomMatrix(WeightFormat format) {
  std::mt19937 engine(2);
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = kTileStrips * kStripRows;
  matrix.cols = kCols;
  if (!format.quantized()) {
    return *Pack(EncodeFloat(RandomVector(matrix.rows * kCols), matrix.rows, kCols, format));
  }
  std::uniform_int_distribution<int> integer(MinInteger(format.type), MaxInteger(format.type));
  matrix.integers.resize(matrix.rows * kCols);
  for (int8_t& q : matrix.integers) q = static_cast<int8_t>(integer(engine));
  matrix.scales.assign(matrix.rows * matrix.blocks(), 0x1p-8f);
  return *Pack(matrix);
}

// Quantized rows for `tokens` tokens.
struct Activations {
  Activations(const Kernels& kernels, ActivationFormat format, size_t tokens)
      : floats(RandomVector(tokens * kCols)),
        values(tokens * kCols),
        scales(tokens * kCols / kActivationBlock),
        offsets(tokens * kCols / kActivationBlock),
        totals(tokens) {
    rows.format = format;
    rows.cols = kCols;
    rows.floats = floats.data();
    rows.float_stride = kCols;
    rows.values = values.data();
    rows.value_stride = kCols;
    rows.scales = scales.data();
    rows.scale_stride = kCols / kActivationBlock;
    rows.offsets = offsets.data();
    rows.offset_stride = kCols / kActivationBlock;
    rows.total_offset = totals.data();
    for (size_t t = 0; t < tokens && format != ActivationFormat::kFloat; ++t) {
      const float* x = floats.data() + t * kCols;
      int8_t* v = rows.values + t * rows.value_stride;
      float* s = rows.scales + t * rows.scale_stride;
      int32_t* o = rows.offsets + t * rows.offset_stride;
      if (format == ActivationFormat::kRow) {
        kernels.quantize_row(x, kCols, v, s, o, rows.total_offset + t);
      } else {
        kernels.quantize_blocks({.x = x, .n = kCols, .values = v, .scales = s, .offsets = o});
      }
    }
  }
  std::vector<float> floats;
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<int32_t> offsets;
  std::vector<int32_t> totals;
  ActivationRows rows;
};

void Dot(benchmark::State& state, const Kernels& kernels, WeightFormat format,
         ActivationFormat activations, size_t tokens) {
  const PackedMatrix packed = RandomMatrix(format);
  const PackedMatrixView matrix = packed.view();
  const Activations x(kernels, activations, tokens);
  std::vector<std::byte> tile_data(TilesBytes(tokens, x.rows));
  const ActivationTiles tiles = {
      .height = tokens < 2 ? 0 : kernels.tile_height(format, activations),
      .columns = kernels.tile_columns,
      .tokens = tokens,
      .blocks = x.rows.offset_stride,
      .data = tile_data.data()};
  if (tiles.height != 0) {
    const size_t count = TokenTiles(tokens, tiles.height).count();
    for (size_t tile = 0; tile < count; ++tile) PackTile(x.rows, tiles, tile);
  }
  AlignedBuffer out = *AlignedBuffer::Create(tokens * kDotStride * sizeof(float));
  DotArgs args;
  args.layout = matrix.layout;
  args.num_strips = kTileStrips;
  for (size_t s = 0; s < kTileStrips; ++s) {
    args.weights[s] = matrix.strip_weights(s);
    if (format.quantized()) args.scales[s] = matrix.strip_scales(s);
  }
  args.x = &x.rows;
  if (tiles.height != 0) args.tiles = &tiles;
  args.tokens = tokens;
  args.out = reinterpret_cast<float*>(out.data());
  for (auto _ : state) {
    kernels.dot(args);
    benchmark::ClobberMemory();
  }
  const double operations = 2.0 * static_cast<double>(matrix.layout.rows * kCols * tokens);
  state.counters["OP/s"] =
      benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate);
  state.SetBytesProcessed(
      static_cast<int64_t>(matrix.layout.weight_bytes() + matrix.layout.scale_bytes()) *
      state.iterations());
}

void Quantize(benchmark::State& state, const Kernels& kernels, ActivationFormat format) {
  Activations x(kernels, format, 1);
  for (auto _ : state) {
    if (format == ActivationFormat::kRow) {
      kernels.quantize_row(x.floats.data(), kCols, x.values.data(), x.scales.data(),
                           x.offsets.data(), x.totals.data());
    } else {
      kernels.quantize_blocks({.x = x.floats.data(),
                               .n = kCols,
                               .values = x.values.data(),
                               .scales = x.scales.data(),
                               .offsets = x.offsets.data()});
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(kCols) * state.iterations());
}

void Combine(benchmark::State& state, const Kernels& kernels, Activation activation) {
  const std::vector<float> gate = RandomVector(kCols);
  const std::vector<float> up = RandomVector(kCols);
  std::vector<float> out(kCols);
  CombineArgs args;
  args.activation = activation;
  args.gate = gate.data();
  args.up = up.data();
  args.out = out.data();
  args.n = kCols;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kernels.combine(args));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(kCols) * state.iterations());
}

std::vector<ActivationFormat> ActivationsOf(WeightFormat format) {
  if (!format.quantized()) return {ActivationFormat::kFloat};
  return {ActivationFormat::kRow, ActivationFormat::kBlock};
}

void Register(const Kernels& kernels) {
  const std::string target(kernels.target);
  for (const WeightFormat format : kWeightFormats) {
    for (const ActivationFormat activations : ActivationsOf(format)) {
      for (const size_t tokens : {1, 4, 16, 64}) {
        benchmark::RegisterBenchmark("dot/" + target + "/" + Name(format) + "/" +
                                         std::string(Name(activations)) + "/" +
                                         std::to_string(tokens),
                                     [=, &kernels](benchmark::State& state) {
                                       Dot(state, kernels, format, activations, tokens);
                                     });
      }
    }
  }
  for (const ActivationFormat format : {ActivationFormat::kRow, ActivationFormat::kBlock}) {
    benchmark::RegisterBenchmark(
        "quantize/" + target + "/" + std::string(Name(format)),
        [=, &kernels](benchmark::State& state) { Quantize(state, kernels, format); });
  }
  for (const Activation activation : kActivations) {
    benchmark::RegisterBenchmark(
        "combine/" + target + "/" + std::string(Name(activation)),
        [=, &kernels](benchmark::State& state) { Combine(state, kernels, activation); });
  }
}

const bool kRegistered = [] {
  for (const RegisteredKernels& entry : AllKernels()) {
    if (entry.available) Register(*entry.kernels);
  }
  return true;
}();

}  // namespace
}  // namespace sluice
