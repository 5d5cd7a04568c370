#include "quant/cli/bench_block.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <format>
#include <fstream>
#include <random>
#include <span>

#include "src/base/aligned_buffer.h"
#include "src/base/status.h"
#include "src/file/model_impl.h"
#include "src/format/quantized_matrix.h"

namespace sluice {
namespace {

// Random integers with scales that keep products of unit inputs near 1, so that nothing overflows
// on the way through the block.
QuantizedMatrix RandomMatrix(size_t rows, size_t cols, WeightFormat format, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_int_distribution<int> integer(-MaxInteger(format.type), MaxInteger(format.type));
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
  if (!format.quantized()) {
    std::vector<float> values(rows * cols);
    for (float& v : values) v = deviation * static_cast<float>(integer(engine)) / 4.0f;
    return EncodeFloat(values, rows, cols, format);
  }
  const float scale = deviation * 1.7f / static_cast<float>(MaxInteger(format.type));
  matrix.integers.resize(rows * cols);
  for (int8_t& v : matrix.integers) v = static_cast<int8_t>(integer(engine));
  matrix.scales.assign(rows * matrix.blocks(), StoredScale(scale, format));
  return matrix;
}

void SetActivations(BlockView& block, std::optional<ActivationFormat> requested) {
  if (!requested) return;
  for (ActivationFormat* a : {&block.input, &block.hidden}) {
    if (*a != ActivationFormat::kFloat) *a = *requested;
  }
}

std::string WeightsName(const BlockView& block) {
  std::string all;
  bool same = true;
  const std::string up = Name(block.matrices[Matrix::kUp].layout.format);
  for (const Matrix m : kMatrices) {
    if (m == Matrix::kGate && !block.gated) continue;
    const std::string name = Name(block.matrices[m].layout.format);
    same = same && name == up;
    all += (all.empty() ? "" : "/") + name;
  }
  return same ? up : all;
}

size_t PlaneBytes(const PackedMatrixView& matrix) {
  if (matrix.weights == nullptr) return 0;
  return matrix.layout.weight_bytes() + matrix.layout.scale_bytes() +
         (matrix.bias == nullptr ? 0 : RoundUp(matrix.layout.bias_bytes(), kAlignment));
}

// Copies the planes of `matrix` to `to`, and makes it point there; returns where they end.
std::byte* CopyPlanes(PackedMatrixView& matrix, std::byte* to) {
  const auto copy = [&to](const std::byte* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return std::exchange(to, to + RoundUp(bytes, kAlignment));
  };
  matrix.weights = copy(matrix.weights, matrix.layout.weight_bytes());
  if (matrix.scales != nullptr) matrix.scales = copy(matrix.scales, matrix.layout.scale_bytes());
  if (matrix.bias != nullptr) {
    const auto* bias = reinterpret_cast<const std::byte*>(matrix.bias);
    matrix.bias = reinterpret_cast<const float*>(copy(bias, matrix.layout.bias_bytes()));
  }
  return to;
}

// "32768K" or "300M", as /sys writes cache sizes.
uint64_t ParseCacheSize(const std::string& text) {
  uint64_t value = 0;
  size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + static_cast<uint64_t>(text[i] - '0');
  }
  if (i < text.size() && text[i] == 'K') value <<= 10;
  if (i < text.size() && text[i] == 'M') value <<= 20;
  return value;
}

}  // namespace

uint64_t BenchBlock::stored_bytes() const {
  uint64_t bytes = 0;
  for (const PackedMatrixView& matrix : view.matrices.items) {
    if (matrix.weights == nullptr) continue;
    bytes += matrix.layout.weight_bytes() + matrix.layout.scale_bytes();
  }
  return bytes;
}

uint64_t BenchBlock::operations_per_token() const {
  return uint64_t{view.gated ? 6u : 4u} * view.d_model * view.d_ff;
}

Expected<BenchBlock> RandomBlock(size_t d, size_t m, WeightFormat format,
                                 std::optional<ActivationFormat> activations) {
  BenchBlock block;
  block.view.d_model = d;
  block.view.d_ff = m;
  for (const Matrix matrix : kMatrices) {
    const bool down = matrix == Matrix::kDown;
    // Before the weights, which may be of any size, are made.
    SLUICE_TRY(PackedLayout::Create(format, down ? d : m, down ? m : d));
    SLUICE_ASSIGN(PackedMatrix packed, Pack(RandomMatrix(down ? d : m, down ? m : d, format,
                                                         static_cast<uint64_t>(matrix) + 1)));
    block.view.matrices[matrix] = packed.view();
    block.owned.push_back(std::move(packed));
  }
  const BlockActivations defaults = DefaultActivations({{format, format, format}}, true);
  block.view.input = defaults.input;
  block.view.hidden = defaults.hidden;
  SetActivations(block.view, activations);
  block.weights = WeightsName(block.view);
  return block;
}

Expected<BenchBlock> FileBlock(const Model& model, size_t layer,
                               std::optional<ActivationFormat> activations) {
  BenchBlock block;
  SLUICE_ASSIGN(block.view, model.impl().Block(layer));
  SetActivations(block.view, activations);
  block.weights = WeightsName(block.view);
  return block;
}

Expected<BlockRing> BlockRing::Create(const BlockView& block, size_t copies) {
  size_t bytes = 0;
  for (const PackedMatrixView& matrix : block.matrices.items) bytes += PlaneBytes(matrix);
  BlockRing ring;
  // Plain memory without huge pages: a mapped file has none either, and XNNPACK allocates its
  // weights this way, so that the comparison is one of kernels.
  ring.memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes * copies)));
  if (ring.memory_ == nullptr) {
    return Fail(ErrorCode::kIo, "out of memory: {} copies of {} bytes", copies, bytes);
  }
  std::byte* to = ring.memory_.get();
  for (size_t i = 0; i < copies; ++i) {
    BlockView copy = block;
    for (PackedMatrixView& matrix : copy.matrices.items) {
      if (matrix.weights != nullptr) to = CopyPlanes(matrix, to);
    }
    ring.views_.push_back(copy);
  }
  return ring;
}

uint64_t LastLevelCacheBytes() {
  uint64_t largest = 0;
  std::error_code error;
  const std::filesystem::path caches = "/sys/devices/system/cpu/cpu0/cache";
  for (const auto& entry : std::filesystem::directory_iterator(caches, error)) {
    std::string size;
    std::ifstream(entry.path() / "size") >> size;
    largest = std::max(largest, ParseCacheSize(size));
  }
  for (const int name : {_SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL4_CACHE_SIZE}) {
    const long size = sysconf(name);
    if (size > 0) largest = std::max(largest, static_cast<uint64_t>(size));
  }
  constexpr uint64_t kGuess = uint64_t{32} << 20;
  return largest == 0 ? kGuess : largest;
}

uint64_t AvailableMemoryBytes() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %" SCNu64 " kB", &kib) == 1) return kib << 10;
  }
  return static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace sluice
