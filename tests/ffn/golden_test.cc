// Checksums of results made on x86-64, compared bit for bit on every architecture. A test on one
// machine can only say that its own targets agree; this one says that a workstation's report is
// true of the device.
//
// SLUICE_WRITE_GOLDEN=1 rewrites the file: only after a deliberate change of the numerics contract.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/half.h"
#include "tests/support/kernel_targets.h"
#include "tests/support/random_block.h"
#include "tests/support/run_block.h"

namespace sluice {
namespace {

const std::string kGoldenFile = std::string(SLUICE_TEST_DATA) + "/golden/forward.txt";

// A generator that is the same everywhere: the standard library's distributions are not.
class Stream {
 public:
  uint32_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  int Integer(int low, int high) {
    return low + static_cast<int>(Next() % static_cast<uint32_t>(high - low + 1));
  }
  // Sums of four uniforms: a bell of deviation about 0.58.
  float Value() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(Next() & 0xFFFF) * 0x1p-16f - 0.5f;
    return sum;
  }

 private:
  uint64_t state_ = 20240229;
};

QuantizedMatrix MakeMatrix(Stream& stream, WeightFormat format, size_t rows, size_t cols) {
  QuantizedMatrix matrix;
  matrix.format = format;
  matrix.rows = rows;
  matrix.cols = cols;
  for (size_t i = 0; i < rows * cols; ++i) {
    if (format.quantized()) {
      matrix.integers.push_back(
          static_cast<int8_t>(stream.Integer(MinInteger(format.type), MaxInteger(format.type))));
    } else {
      const float value = stream.Value() * 0.25f;
      matrix.values.push_back(format.type == WeightType::kBf16 ? ToFloat(ToBf16(value)) : value);
    }
  }
  for (size_t i = 0; format.quantized() && i < rows * matrix.blocks(); ++i) {
    const float scale = static_cast<float>(stream.Integer(1, 1000)) * 0x1p-14f;
    matrix.scales.push_back(StoredScale(scale, format));
  }
  return matrix;
}

// FNV-1a over the bits.
uint64_t Checksum(const std::vector<float>& values) {
  uint64_t hash = 14695981039346656037u;
  for (const float value : values) {
    hash = (hash ^ std::bit_cast<uint32_t>(value)) * 1099511628211u;
  }
  return hash;
}

uint64_t ChecksumOf(WeightFormat format, ActivationFormat activations, Activation activation,
                    bool gated, std::string_view target) {
  constexpr size_t kModel = 173;
  constexpr size_t kHidden = 290;
  constexpr size_t kTokens = 19;
  Stream stream;
  BlockView block;
  block.d_model = kModel;
  block.d_ff = kHidden;
  block.activation = activation;
  block.gated = gated;
  const BlockActivations formats = ActivationsFor(test::AllOf(format), gated, activations);
  block.input = formats.input;
  block.hidden = formats.hidden;
  PerMatrix<PackedMatrix> packed;
  for (const Matrix m : kMatrices) {
    if (m == Matrix::kGate && !gated) continue;
    const size_t rows = m == Matrix::kDown ? kModel : kHidden;
    const QuantizedMatrix plain =
        MakeMatrix(stream, format, rows, m == Matrix::kDown ? kHidden : kModel);
    std::vector<float> bias(rows);
    for (float& b : bias) b = stream.Value();
    packed[m] = *Pack(plain, bias);
    block.matrices[m] = packed[m].view();
  }
  std::vector<float> x(kTokens * kModel);
  for (float& v : x) v = stream.Value() * 2.0f;
  return Checksum(test::RunBlock(block, x, {.target = target}));
}

std::map<std::string, std::string> ReadGolden() {
  std::map<std::string, std::string> golden;
  std::ifstream in(kGoldenFile);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string key;
    std::string value;
    fields >> key >> value;
    golden[key] = value;
  }
  return golden;
}

// Calls visit(key, checksum on `target`) for every combination.
template <class Visit>
void ForEachCase(std::string_view target, const Visit& visit) {
  const auto add = [&](WeightFormat format, ActivationFormat activations, Activation activation,
                       bool gated) {
    std::ostringstream key;
    key << Name(format) << "/" << Name(activations) << "/" << Name(activation) << "/"
        << (gated ? "gated" : "ungated");
    std::ostringstream value;
    value << std::hex << ChecksumOf(format, activations, activation, gated, target);
    visit(key.str(), value.str());
  };
  for (const WeightFormat format : kWeightFormats) {
    for (const ActivationFormat activations : {ActivationFormat::kRow, ActivationFormat::kBlock}) {
      add(format, activations, Activation::kSilu, true);
    }
  }
  for (const Activation activation : kActivations) {
    for (const bool gated : {true, false}) {
      add({WeightType::kInt4, 32}, ActivationFormat::kBlock, activation, gated);
    }
  }
}

TEST(Golden, EveryTargetGivesTheRecordedBits) {
  if (std::getenv("SLUICE_WRITE_GOLDEN") != nullptr) {
    std::ofstream out(kGoldenFile);
    out << "# format/activations/activation/gated  FNV-1a of the bits of y; written by "
           "golden_test.cc\n";
    std::map<std::string, std::string> cases;
    ForEachCase({}, [&](const std::string& key, const std::string& value) { cases[key] = value; });
    for (const auto& [key, value] : cases) out << key << " " << value << "\n";
  }
  const std::map<std::string, std::string> golden = ReadGolden();
  ASSERT_GE(golden.size(), 28u) << kGoldenFile;
  for (const Kernels* kernels : test::AttainableKernels()) {
    if (!kernels->exact) continue;
    ForEachCase(kernels->target, [&](const std::string& key, const std::string& value) {
      const auto it = golden.find(key);
      ASSERT_NE(it, golden.end()) << key;
      EXPECT_EQ(value, it->second) << key << " on " << kernels->target;
    });
  }
}

TEST(Golden, OneBitChangesTheChecksum) {
  std::vector<float> values = {1.0f, 2.0f, 3.0f};
  const uint64_t before = Checksum(values);
  values[1] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[1]) ^ 1u);
  EXPECT_NE(Checksum(values), before);
  std::swap(values[0], values[2]);
  EXPECT_NE(Checksum(values), before);
}

}  // namespace
}  // namespace sluice
