#include "quant/decoder/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <format>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

namespace sluice::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Npy(std::string_view header, std::string_view data, char version = 1) {
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  file += version == 1 ? BytesOf(static_cast<uint16_t>(header.size()))
                       : BytesOf(static_cast<uint32_t>(header.size()));
  return file + std::string(header) + std::string(data);
}

std::string Dictionary(std::string_view descr, std::string_view shape,
                       std::string_view order = "False") {
  return std::format("{{'descr': '{}', 'fortran_order': {}, 'shape': {}, }}   \n", descr, order,
                     shape);
}

template <class T>
std::string Data(const std::vector<T>& values) {
  return BytesOf(std::span<const T>(values));
}

class TokensTest : public ::testing::Test {
 protected:
  Expected<Tokens> Read(std::string_view bytes, size_t context = 4, size_t vocabulary = 100) {
    WriteBytes(dir_.File("tokens"), bytes);
    return ReadTokens(dir_.File("tokens"), context, vocabulary);
  }

  void ExpectError(std::string_view bytes, std::string_view message) {
    const auto tokens = Read(bytes);
    ASSERT_FALSE(tokens) << message;
    EXPECT_THAT(tokens.error().message, HasSubstr(message));
    EXPECT_THAT(tokens.error().message, HasSubstr(dir_.File("tokens")));
  }

  TempDir dir_;
};

TEST_F(TokensTest, ReadsEveryVersionAndType) {
  for (const char version : {1, 2, 3}) {
    const auto narrow = Read(Npy(Dictionary("<i4", "(3,)"), Data<int32_t>({0, 99, 7}), version));
    ASSERT_TRUE(narrow) << narrow.error().message;
    EXPECT_THAT(narrow->ids, ElementsAre(0, 99, 7));
    const auto wide = Read(Npy(Dictionary("<i8", "(3,)"), Data<int64_t>({0, 99, 7}), version));
    ASSERT_TRUE(wide) << wide.error().message;
    EXPECT_THAT(wide->ids, ElementsAre(0, 99, 7));
  }
}

TEST_F(TokensTest, ReadsSafetensors) {
  SafetensorsBytes file;
  file.Tensor("tokens", "I64", {2, 3}, Data<int64_t>({1, 2, 3, 4, 5, 6}));
  const auto tokens = Read(file.Build(), 2);
  ASSERT_TRUE(tokens) << tokens.error().message;
  EXPECT_THAT(tokens->ids, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(tokens->windows, ElementsAre(2, 1, 2, 1));
  EXPECT_EQ(tokens->predictions(), 2);
}

TEST_F(TokensTest, CutsWindowsThatEndWithTheText) {
  const auto flat = Read(Npy(Dictionary("<i4", "(9,)"), Data(std::vector<int32_t>(9))));
  ASSERT_TRUE(flat);
  EXPECT_THAT(flat->windows, ElementsAre(4, 4, 1));
  EXPECT_EQ(flat->longest_window(), 4);
  const auto rows = Read(Npy(Dictionary("<i4", "(2, 5)"), Data(std::vector<int32_t>(10))));
  ASSERT_TRUE(rows);
  EXPECT_THAT(rows->windows, ElementsAre(4, 1, 4, 1));
}

TEST_F(TokensTest, GroupsHoldWholeWindows) {
  const auto tokens = Read(Npy(Dictionary("<i4", "(15,)"), Data(std::vector<int32_t>(15))));
  ASSERT_TRUE(tokens);
  const auto groups = GroupWindows(*tokens, 9);
  ASSERT_EQ(groups.size(), 2);
  EXPECT_THAT(groups[0].windows, ElementsAre(4, 4));
  EXPECT_THAT(groups[1].windows, ElementsAre(4, 3));
  EXPECT_EQ(groups[1].first_token, 8);
  EXPECT_EQ(groups[1].ids.size(), 7);
  EXPECT_EQ(GroupWindows(*tokens, 1).size(), 4);  // a longer window is a group of its own
}

TEST_F(TokensTest, RefusesIdsOutsideTheVocabulary) {
  ExpectError(Npy(Dictionary("<i4", "(2,)"), Data<int32_t>({99, 100})), "token 1 is 100");
  ExpectError(Npy(Dictionary("<i8", "(2,)"), Data<int64_t>({-1, 1})), "token 0 is -1");
  ExpectError(Npy(Dictionary("<i8", "(1,)"), Data<int64_t>({int64_t{1} << 32})),
              "token 0 is 4294967296");
}

TEST_F(TokensTest, RefusesOtherArrays) {
  const std::string four(4, '\0'), eight(8, '\0');
  ExpectError(Npy(Dictionary(">i4", "(1,)"), four), "type \">i4\"");
  ExpectError(Npy(Dictionary("<f4", "(1,)"), four), "type \"<f4\"");
  ExpectError(Npy(Dictionary("|O", "(1,)"), four), "type \"|O\"");
  ExpectError(Npy(Dictionary("<i4", "(1, 2)", "True"), eight), "Fortran");
  ExpectError(Npy(Dictionary("<i4", "()"), four), "shape []");
  ExpectError(Npy(Dictionary("<i4", "(1, 1, 1)"), four), "shape [1, 1, 1]");
  ExpectError(Npy(Dictionary("<i4", "(0,)"), ""), "shape [0]");
  ExpectError(Npy(Dictionary("<i4", "(0, 5)"), ""), "shape [0, 5]");
  ExpectError(Npy(Dictionary("<i4", "(5, 0)"), ""), "shape [5, 0]");
}

TEST_F(TokensTest, RefusesWhatIsDamaged) {
  const std::string good = Npy(Dictionary("<i4", "(2,)"), std::string(8, '\0'));
  ASSERT_TRUE(Read(good));
  for (size_t cut = 1; cut < good.size(); ++cut) EXPECT_FALSE(Read(good.substr(0, cut))) << cut;
  ExpectError(good + "x", "9 bytes of data");
  ExpectError(Npy(Dictionary("<i4", "(4294967296, 4294967296)"), "1234"), "bytes of data");
  ExpectError(Npy(Dictionary("<i4", "(99999999999999999999,)"), "1234"), "not a dictionary");
  ExpectError(Npy(Dictionary("<i4", "(-1,)"), "1234"), "not a dictionary");
  ExpectError(Npy(Dictionary("<i4", "(1,)"), "1234", 9), "version 9");
  ExpectError(Npy("{'descr': '<i4', 'shape': (1,)}", "1234"), "not a dictionary");
  ExpectError(
      Npy("{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (1,)}", "1234"),
      "not a dictionary");
  ExpectError(Npy("__import__('os')", "1234"), "not a dictionary");
  ExpectError(Npy(std::string(20'000, ' '), "1234", 2), "NumPy's limit");
  ExpectError("just text", "tokens come as .npy or safetensors");
  SafetensorsBytes other;
  other.Tensor("ids", "I32", {1}, "1234");
  ExpectError(other.Build(), "there is no tensor tokens");
  SafetensorsBytes floats;
  floats.F32("tokens", {1}, {1});
  ExpectError(floats.Build(), "tokens is F32");
}

TEST_F(TokensTest, TextIsBytes) {
  WriteBytes(dir_.File("text"), "\xff z");
  const auto tokens = ReadText(dir_.File("text"), 2, 256);
  ASSERT_TRUE(tokens);
  EXPECT_THAT(tokens->ids, ElementsAre(255, 32, 122));
  EXPECT_THAT(tokens->windows, ElementsAre(2, 1));
  const auto other = ReadText(dir_.File("text"), 2, 49152);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("vocabulary of 49152"));
}

}  // namespace
}  // namespace sluice::test
