// Each single fault planted in a file's tensors is found by Verify, which names the tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "sluice/model.h"
#include "src/file/checksum.h"
#include "tests/file/forged_model.h"
#include "tests/file/sample_model.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ModelVerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    test::SampleModel sample = test::MixedModel(random_);
    // What MixedModel lacks: f32, and a second block size.
    const test::BlockOptions options = {
        .formats = {{WeightFormat{WeightType::kInt4, 0}, WeightFormat{WeightType::kInt4, 64},
                     WeightFormat{WeightType::kF32, 0}}},
        .biases = true};
    sample.Add(9, test::MakeRandomBlock(random_, 33, 17, options));
    ASSERT_TRUE(sample.Write(path_));
  }

  // The message of Verify; Open accepts the file.
  std::string Verify() {
    const auto model = Model::Open(path_);
    if (!model) return "not opened: " + model.error().message;
    const Status status = model->Verify();
    if (status) return "verified";
    EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(status.error().message, HasSubstr(path_));
    return status.error().message;
  }

  test::TempDir dir_;
  std::string path_ = dir_.File("model.safetensors");
  test::Random random_;
};

// Python: xxhash.xxh3_64_hexdigest.
TEST(ChecksumTest, IsXxh3WithSeedZero) {
  const auto text = [](std::string_view s) {
    return ChecksumText(Checksum(std::as_bytes(std::span(s))));
  };
  EXPECT_EQ(text(""), "2d06800538d394c2");
  EXPECT_EQ(text("sluice"), "7e13095f1588691d");
  EXPECT_EQ(text(std::string(1000, 'x')), "c0a4877b962cba82");
}

TEST(ChecksumTest, TextComesBack) {
  for (const uint64_t value :
       {uint64_t{0}, uint64_t{1}, UINT64_MAX, uint64_t{0x0123456789ABCDEF}}) {
    EXPECT_EQ(ChecksumText(value).size(), 16u);
    EXPECT_EQ(ParseChecksum(ChecksumText(value)), value);
  }
  for (const std::string_view bad : {"", "0", "00000000000000000", "000000000000000g",
                                     "-000000000000001", "0x00000000000000", " 00000000000000f"}) {
    EXPECT_EQ(ParseChecksum(bad), std::nullopt) << bad;
  }
}

TEST_F(ModelVerifyTest, FindsAFlippedBitInEveryTensor) {
  ASSERT_EQ(Verify(), "verified");
  const test::ForgedModel original(path_);
  // 3 × (weight, scale, bias), 2 weights and 1 scale, 3 × (weight, bias) and 2 scales.
  ASSERT_EQ(original.tensors.size(), 9u + 3u + 8u);
  for (size_t i = 0; i < original.tensors.size(); ++i) {
    for (const size_t bit : {size_t{0}, original.tensors[i].bytes.size() * 8 - 1}) {
      test::ForgedModel forged = original;
      forged.tensors[i].bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
      forged.Write(path_);
      EXPECT_THAT(Verify(), AllOf(HasSubstr("tensor \"" + original.tensors[i].name + "\""),
                                  HasSubstr("checksum")));
    }
  }
}

// Foreign hands: the checksums are right, the values are not.
TEST_F(ModelVerifyTest, FindsValuesThatNoQuantizerWrites) {
  struct Case {
    std::string tensor;
    size_t offset;
    std::vector<uint8_t> bytes;
    std::string message;
  };
  const std::vector<uint8_t> nan32 = {0, 0, 0xC0, 0x7F};
  const std::vector<uint8_t> inf32 = {0, 0, 0x80, 0xFF};
  // layers.3: gate [17, 33] qb4w:32, up [17, 33] qc8w, down [33, 17] qb8w:32. All columns padded
  // to 64 or 32; rows to 32 or 48. layers.7: up bf16, down qc4w. layers.9: qc4w, qb4w:64, f32.
  const Case cases[] = {
      // Row 1, column 2 of the first line: byte 4·1 + 2. −128.
      {"layers.3.up.weight", 6, {0x80}, "row 1, column 2 is -128, expected >= -127"},
      {"layers.3.down.weight", 6, {0x80}, "row 1, column 2 is -128, expected >= -127"},
      // The second strip, 16 lines on: row 16 is real, row 17 is padding.
      {"layers.3.up.weight", 16 * 64 + 0, {0x80}, "row 16, column 0 is -128"},
      {"layers.3.up.weight", 16 * 64 + 4, {0x01}, "padding at row 17, column 0 is 1, expected 0"},
      // Column 33 is padding: line 8, byte 1.
      {"layers.3.up.weight", 8 * 64 + 1, {0xFF}, "padding at row 0, column 33 is -1, expected 0"},
      {"layers.3.up.weight", 8 * 64 + 1, {0x80}, "padding at row 0, column 33 is -128"},
      // int4: line 4 holds columns 32 to 39; column 33 is the low nibble of byte 1, 36 the high one
      // of byte 0, whose low nibble is a weight.
      {"layers.3.gate.weight", 4 * 64 + 1, {0x89}, "padding at row 0, column 33 is 1, expected 0"},
      {"layers.3.gate.weight", 4 * 64 + 0, {0x78}, "padding at row 0, column 36 is -1"},
      {"layers.3.gate.weight", 8 * 64 + 4, {0x80}, "padding at row 17, column 0 is -8"},
      {"layers.7.down.weight", 2 * 64 + 4, {0x08}, "padding at row 1, column 20 is -8"},
      // Floats.
      {"layers.7.up.weight", 2, {0x80, 0x7F}, "the weight at row 1, column 0 is inf"},
      {"layers.7.up.weight", 2, {0xC1, 0x7F}, "the weight at row 1, column 0 is nan"},
      {"layers.7.up.weight", 33 * 32, {0x00, 0x80}, "padding at row 0, column 33 is -0"},
      {"layers.9.down.weight", 4, nan32, "the weight at row 1, column 0 is nan"},
      {"layers.9.down.weight", 4, inf32, "the weight at row 1, column 0 is -inf"},
      {"layers.9.down.weight", 17 * 64, {0, 0, 0x80, 0x3F}, "padding at row 0, column 17 is 1"},
      // Scales: two blocks of 16 bf16 a strip; 16 f32 a strip.
      {"layers.3.gate.scale", 2 * 17, {0xC0, 0x7F}, "the scale of row 1, block 1 is nan"},
      {"layers.3.gate.scale", 2 * 17, {0x80, 0xFF}, "the scale of row 1, block 1 is -inf"},
      {"layers.3.gate.scale", 2 * 33, {0x80, 0x3F}, "the scale of row 17, block 0 is 1"},
      {"layers.3.up.scale", 4, nan32, "the scale of row 1, block 0 is nan"},
      {"layers.3.up.scale", 4 * 17, {0, 0, 0x80, 0x3F}, "the scale of row 17, block 0 is 1"},
      // down has 3 strips of 16 bf16: 96 bytes, the other 32 fill the plane up.
      {"layers.3.down.scale", 96, {0x01}, "padding at byte 96 is 1, expected 0"},
      {"layers.3.down.scale", 127, {0xFF}, "padding at byte 127 is 255, expected 0"},
      // Biases.
      {"layers.3.gate.bias", 4, nan32, "the bias of row 1 is nan"},
      {"layers.9.down.bias", 4 * 32, inf32, "the bias of row 32 is -inf"},
      {"layers.9.down.bias", 4 * 33, {0, 0, 0x80, 0x3F}, "the bias of row 33 is 1"},
  };
  const test::ForgedModel original(path_);
  for (const Case& c : cases) {
    test::ForgedModel forged = original;
    std::memcpy(forged.bytes(c.tensor).data() + c.offset, c.bytes.data(), c.bytes.size());
    forged.Seal();
    forged.Write(path_);
    EXPECT_THAT(Verify(), AllOf(HasSubstr("tensor \"" + c.tensor + "\""), HasSubstr(c.message)))
        << c.tensor << " at " << c.offset;
  }
}

TEST_F(ModelVerifyTest, NamesTheFirstTensorThatIsWrong) {
  test::ForgedModel forged(path_);
  forged.bytes("layers.9.gate.weight")[0] ^= 1;
  forged.bytes("layers.3.down.bias")[0] ^= 1;
  forged.Write(path_);
  EXPECT_THAT(Verify(), HasSubstr("\"layers.3.down.bias\""));
}

TEST_F(ModelVerifyTest, AcceptsNegativeScalesAndTheWholeRangeOfIntegers) {
  test::ForgedModel forged(path_);
  forged.bytes("layers.3.up.weight")[0] = static_cast<char>(0x81);    // −127
  forged.bytes("layers.3.gate.weight")[0] = static_cast<char>(0xF0);  // −8 and 7
  forged.bytes("layers.3.up.scale")[3] ^= static_cast<char>(0x80);
  forged.Seal();
  forged.Write(path_);
  EXPECT_EQ(Verify(), "verified");
}

}  // namespace
}  // namespace sluice
