// Opening a model costs page tables, not a copy (CASES.md H22).
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "sluice/model.h"
#include "src/base/aligned_buffer.h"
#include "src/file/model_writer.h"
#include "tests/file/sample_model.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A line of /proc/self/status, e.g. "RssAnon", in bytes.
uint64_t StatusBytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key + ":")) continue;
    std::istringstream fields(line.substr(key.size() + 1));
    uint64_t kilobytes = 0;
    fields >> kilobytes;
    return kilobytes * 1024;
  }
  ADD_FAILURE() << "no " << key << " in /proc/self/status";
  return 0;
}

// Two gated blocks of six qc8w matrices of 8 MiB, all with the same memory.
void WriteLargeModel(const std::string& path) {
  constexpr size_t kModel = 1024;
  constexpr size_t kHidden = 8192;
  const WeightFormat format = {WeightType::kInt8, 0};
  const AlignedBuffer weights = AlignedBuffer::Create(kModel * kHidden).value();
  const AlignedBuffer scales = AlignedBuffer::Create(kHidden * sizeof(float)).value();
  BlockView block;
  block.d_model = kModel;
  block.d_ff = kHidden;
  block.input = block.hidden = ActivationFormat::kRow;
  for (const Matrix m : kMatrices) {
    const bool down = m == Matrix::kDown;
    const size_t rows = down ? kModel : kHidden;
    const size_t cols = down ? kHidden : kModel;
    block.matrices[m] = {PackedLayout::Create(format, rows, cols).value(), weights.data(),
                         scales.data(), nullptr};
  }
  auto writer = ModelWriter::Create(path, "llama",
                                    {test::DescribeLayer(0, block), test::DescribeLayer(1, block)});
  ASSERT_TRUE(writer);
  for (const size_t layer : {0, 1}) {
    for (const Matrix m : kMatrices) ASSERT_TRUE(writer->Add(layer, m, block.matrices[m]));
  }
  ASSERT_TRUE(writer->Finish());
}

TEST(ModelMemoryTest, OpeningReadsNoWeightsAndVerifyKeepsNone) {
  const test::TempDir dir;
  const std::string path = dir.File("large.safetensors");
  WriteLargeModel(path);
  const uint64_t file_before = StatusBytes("RssFile");
  const uint64_t anonymous_before = StatusBytes("RssAnon");
  const auto model = Model::Open(path);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_GT(model->file_bytes(), 48 * kMiB);
  const auto first = model->Layer(0);
  const auto second = model->Layer(1);
  ASSERT_TRUE(first && second);
  EXPECT_LT(StatusBytes("RssFile"), file_before + 4 * kMiB);
  EXPECT_LT(StatusBytes("RssAnon"), anonymous_before + 4 * kMiB);
  // The last matrix may still be mapped.
  const Status verified = model->Verify();
  EXPECT_TRUE(verified) << verified.error().message;
  EXPECT_LT(StatusBytes("RssFile"), file_before + 12 * kMiB);
  EXPECT_LT(StatusBytes("RssAnon"), anonymous_before + 4 * kMiB);
}

}  // namespace
}  // namespace sluice
