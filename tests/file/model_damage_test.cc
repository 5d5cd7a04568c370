// A packed model damaged at random: it opens as what it was, or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/model.h"
#include "src/base/aligned_buffer.h"
#include "src/file/model_impl.h"
#include "src/file/model_planes.h"
#include "tests/file/forged_model.h"
#include "tests/file/sample_model.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

class ModelDamageTest : public testing::Test {
 protected:
  ModelDamageTest() {
    const test::BlockOptions options = {
        .formats = {{WeightFormat{WeightType::kInt4, 32}, WeightFormat{WeightType::kInt8, 0},
                     WeightFormat{WeightType::kBf16, 0}}},
        .biases = true};
    sample_.Add(0, test::MakeRandomBlock(random_, 3, 2, options));
    EXPECT_TRUE(sample_.Write(path_));
    bytes_ = test::ReadBytes(path_);
    std::memcpy(&header_, bytes_.data(), sizeof(header_));
    header_ += 8;
  }

  // Opens `bytes`. What opens must be safe to use: every plane inside the file.
  bool Opens(std::string_view bytes) {
    test::WriteBytes(path_, bytes);
    const auto model = Model::Open(path_);
    if (!model) {
      EXPECT_EQ(model.error().message.find(path_ + ": "), 0u) << model.error().message;
      EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
      return false;
    }
    const auto file = model->impl().file().file().bytes();
    for (const LayerInfo& layer : model->layers()) {
      const BlockView block = model->impl().Block(layer.layer).value();
      EXPECT_TRUE(CheckBlock(block));
      for (const Matrix m : kMatrices) {
        for (const Plane plane : kPlanes) {
          const auto plane_bytes = PlaneBytes(block.matrices[m], plane);
          if (plane_bytes.empty()) continue;
          EXPECT_GE(plane_bytes.data(), file.data());
          EXPECT_LE(plane_bytes.data() + plane_bytes.size(), file.data() + file.size());
        }
      }
    }
    same_ = model->layers() == sample_.layers && model->architecture() == "llama";
    verified_ = model->Verify().has_value();
    return true;
  }

  test::TempDir dir_;
  std::string path_ = dir_.File("model.safetensors");
  test::Random random_;
  test::SampleModel sample_;
  std::string bytes_;
  uint64_t header_ = 0;    // bytes before the first tensor
  bool same_ = false;      // what opened last describes the same model
  bool verified_ = false;  // and passed Verify
};

// CASES.md H18.
TEST_F(ModelDamageTest, EveryTruncationIsRefused) {
  ASSERT_TRUE(Opens(bytes_));
  ASSERT_TRUE(same_ && verified_);
  for (size_t size = 0; size < bytes_.size(); size += size < header_ ? 7 : 16) {
    EXPECT_FALSE(Opens(std::string_view(bytes_).substr(0, size))) << size;
  }
  const auto header = static_cast<size_t>(header_);
  const size_t sizes[] = {header - 1,         header,           header + 1, bytes_.size() / 2,
                          bytes_.size() - 64, bytes_.size() - 1};
  for (const size_t size : sizes) {
    EXPECT_FALSE(Opens(std::string_view(bytes_).substr(0, size))) << size;
  }
  for (const size_t more : {1, 64, 4096}) EXPECT_FALSE(Opens(bytes_ + std::string(more, '\0')));
}

// An interrupted copy: the right length, nothing in it.
TEST_F(ModelDamageTest, UnwrittenTensorsAreFoundByVerify) {
  std::string bytes = bytes_;
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(header_), bytes.end(), '\0');
  ASSERT_TRUE(Opens(bytes));
  EXPECT_FALSE(verified_);
  EXPECT_FALSE(Opens(std::string(bytes_.size(), '\0')));
}

// No byte of the header can change its meaning unnoticed.
TEST_F(ModelDamageTest, EveryHeaderByteMatters) {
  for (size_t i = 0; i < header_; ++i) {
    const char was = bytes_[i];
    for (const char now : {static_cast<char>(was ^ (1 << i % 8)), '\xFF', '0', '"'}) {
      if (now == was) continue;
      bytes_[i] = now;
      EXPECT_TRUE(!Opens(bytes_) || same_) << "byte " << i << " is " << now;
      bytes_[i] = was;
    }
  }
}

TEST_F(ModelDamageTest, RandomEditsOfTheHeaderNeverCrash) {
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = bytes_;
    for (int edit = random_.Integer(1, 4); edit > 0; --edit) {
      const auto at = static_cast<size_t>(random_.Integer(0, static_cast<int>(header_) - 1));
      const auto n = static_cast<size_t>(random_.Integer(1, 20));
      const auto from = static_cast<size_t>(random_.Integer(8, static_cast<int>(header_) - 1));
      switch (random_.Integer(0, 3)) {
        case 0:
          bytes[at] = static_cast<char>(random_.Integer(0, 255));
          break;
        case 1:
          bytes.erase(at, n);
          break;
        case 2:
          bytes.insert(at, bytes_, from, n);
          break;
        default:
          bytes.replace(at, n, bytes_, from, n);
      }
    }
    // Half of them with a length that is right again, so that the header is looked at.
    const uint64_t length = header_ - 8 + bytes.size() - bytes_.size();
    if (round % 2 == 0) std::memcpy(bytes.data(), &length, sizeof(length));
    EXPECT_TRUE(!Opens(bytes) || same_) << "round " << round;
  }
}

// The container's JSON, each number in turn replaced by an extreme one.
TEST_F(ModelDamageTest, ExtremeNumbersInTheHeaderAreRefused) {
  const std::string json = bytes_.substr(8, header_ - 8);
  const size_t tensors = json.find("},\"layers.0");
  ASSERT_NE(tensors, std::string::npos);
  const std::regex number("[0-9]+(?=[,\\]])");
  const std::string data = bytes_.substr(header_);
  size_t edits = 0;
  for (auto it = std::sregex_iterator(json.begin() + static_cast<std::ptrdiff_t>(tensors),
                                      json.end(), number);
       it != std::sregex_iterator(); ++it) {
    for (const std::string now :
         {"-1", "1.5", "1e3", "4294967296", "9007199254740992", "9223372036854775807",
          "9223372036854775808", "18446744073709551552", "18446744073709551615",
          "18446744073709551616", "null", "\"64\"", "[]", "{}", "64,64"}) {
      std::string header = json;
      header.replace(tensors + static_cast<size_t>(it->position()),
                     static_cast<size_t>(it->length()), now);
      header.resize(RoundUp(header.size() + 8, 64) - 8, ' ');
      const uint64_t length = header.size();
      std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
      EXPECT_FALSE(Opens(bytes + header + data)) << it->str() << " replaced by " << now;
      ++edits;
    }
  }
  EXPECT_EQ(edits, 8u * 3 * 15);  // 8 tensors, one dimension and two offsets each
}

// The same in the description, whose checksum the forger makes right.
TEST_F(ModelDamageTest, ExtremeNumbersInTheDescriptionNeverCrash) {
  const test::ForgedModel original(path_);
  const std::string text = original.metadata.at("sluice");
  const std::regex number("[0-9]+(?=[,\\]}])");
  size_t opened = 0;
  size_t edits = 0;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), number);
       it != std::sregex_iterator(); ++it) {
    for (const std::string now : {"0", "1", "-1", "1.5", "4", "16", "32", "131072", "131073",
                                  "4294967295", "4294967296", "4294967297", "9223372036854775807",
                                  "18446744073709551615", "18446744073709551616", "null", "[]"}) {
      test::ForgedModel forged = original;
      forged.metadata["sluice"] = text;
      forged.metadata["sluice"].replace(static_cast<size_t>(it->position()),
                                        static_cast<size_t>(it->length()), now);
      forged.metadata["sluice_checksum"] = test::ChecksumOf(forged.metadata["sluice"]);
      forged.WriteMetadata(path_);
      opened += Opens(test::ReadBytes(path_)) ? 1 : 0;
      ++edits;
    }
  }
  EXPECT_GE(edits, 10u * 17);  // version, layer, d_model, d_ff, three shapes
  EXPECT_LT(opened, edits / 10);
}

}  // namespace
}  // namespace sluice
