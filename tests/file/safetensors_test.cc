// Open against files that lie: each is refused with a message that says which tensor and why.
#include "src/file/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string WithLength(uint64_t length, std::string_view rest) {
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes += rest;
}

std::string FileOf(std::string_view header, size_t data_bytes) {
  return WithLength(header.size(), header) + std::string(data_bytes, '\x01');
}

std::string Tensor(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return std::string(R"({"dtype":")") + std::string(dtype) + R"(","shape":)" + std::string(shape) +
         R"(,"data_offsets":)" + std::string(offsets) + "}";
}

// A header with the one tensor "the.tensor".
std::string One(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return R"({"the.tensor":)" + Tensor(dtype, shape, offsets) + "}";
}

class SafetensorsTest : public testing::Test {
 protected:
  Expected<SafetensorsFile> OpenBytes(std::string_view bytes) {
    test::WriteBytes(path_, bytes);
    return SafetensorsFile::Open(path_);
  }
  // The message of the error that these bytes are refused with.
  std::string Refusal(std::string_view bytes) {
    const auto file = OpenBytes(bytes);
    if (file) return "accepted";
    EXPECT_THAT(file.error().message, HasSubstr(path_));
    EXPECT_THAT(file.error().message, Not(HasSubstr("\n")));
    return file.error().message;
  }

  test::TempDir dir_;
  std::string path_ = dir_.File("model.safetensors");
};

TEST_F(SafetensorsTest, ReadsWhatTheReferenceImplementationWrites) {
  // Space after the JSON, metadata, an empty tensor, a scalar; tensors not in the header's order.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":)" + Tensor("BF16", "[1, 2]", "[8, 12]") + R"(,"a":)" +
      Tensor("F32", "[2]", "[0, 8]") + R"(,"empty":)" + Tensor("F32", "[0, 5]", "[12, 12]") +
      R"(,"scalar":)" + Tensor("I64", "[]", "[12, 20]") + "}   ";
  const auto file = OpenBytes(FileOf(header, 20));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file->entries().size(), 4u);
  EXPECT_EQ(file->entries()[0].name, "a");
  const SafetensorsEntry* b = file->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, "BF16");
  EXPECT_EQ(b->shape, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(b->bytes.data(), file->file().bytes().data() + 8 + header.size() + 8);
  EXPECT_EQ(b->bytes.size(), 4u);
  EXPECT_EQ(file->Find("empty")->bytes.size(), 0u);
  EXPECT_EQ(file->Find("scalar")->bytes.size(), 8u);
  EXPECT_EQ(file->Find("c"), nullptr);
}

// CASES.md H16.
TEST_F(SafetensorsTest, RefusesABadHeaderLength) {
  const std::string good = One("F32", "[2]", "[0, 8]");
  const uint64_t size = 8 + good.size() + 8;
  const std::string rest = good + std::string(8, '\0');
  EXPECT_THAT(Refusal(WithLength(std::numeric_limits<uint64_t>::max(), rest)),
              AllOf(HasSubstr("18446744073709551615"), HasSubstr(std::to_string(size - 8))));
  EXPECT_THAT(Refusal(WithLength(size, rest)), HasSubstr(std::to_string(size)));
  EXPECT_THAT(Refusal(WithLength(size - 7, rest)), HasSubstr(std::to_string(size - 7)));
  EXPECT_THAT(Refusal(WithLength(uint64_t{1} << 63, rest)), HasSubstr("9223372036854775808"));
  EXPECT_THAT(Refusal(WithLength(0, rest)), HasSubstr("does not start with"));
  EXPECT_THAT(Refusal(WithLength(good.size() - 1, rest)), HasSubstr("not JSON"));
  EXPECT_THAT(Refusal(WithLength(good.size() + 1, rest)), HasSubstr("not JSON"));
  EXPECT_EQ(Refusal(WithLength(good.size(), rest)), "accepted");
}

TEST_F(SafetensorsTest, RefusesAHeaderBeyondTheFormatsLimit) {
  const auto refusal = [&](uint64_t length) {
    test::WriteBytes(path_, WithLength(length, ""));
    std::filesystem::resize_file(path_, 8 + length);  // zeros that take no space
    return SafetensorsFile::Open(path_).error().message;
  };
  EXPECT_THAT(refusal(100'000'000), HasSubstr("does not start with"));  // so it was looked at
  EXPECT_THAT(refusal(100'000'001),
              AllOf(HasSubstr("100000001"), HasSubstr("the format allows 100000000")));
}

TEST_F(SafetensorsTest, RefusesFilesTooShortForAHeader) {
  EXPECT_THAT(Refusal(""), HasSubstr("the file is empty"));
  EXPECT_THAT(Refusal("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(Refusal(std::string(8, '\0')), HasSubstr("does not start with"));
}

TEST_F(SafetensorsTest, RefusesAMissingFileAndADirectory) {
  EXPECT_EQ(SafetensorsFile::Open(dir_.File("none")).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(SafetensorsFile::Open(dir_.path()).error().message, HasSubstr("is a directory"));
}

TEST_F(SafetensorsTest, RefusesAHeaderThatIsNotAJsonObject) {
  EXPECT_THAT(Refusal(FileOf("{}", 0)), HasSubstr("names no tensor"));
  EXPECT_THAT(Refusal(FileOf("{}", 8)), HasSubstr("names no tensor"));
  EXPECT_THAT(Refusal(FileOf(R"({"__metadata__":{"a":"b"}})", 0)), HasSubstr("names no tensor"));
  for (const std::string header : {"[]", "null", "7", "\"x\"", "\xEF\xBB\xBF{}", " {}", "hello"}) {
    EXPECT_THAT(Refusal(FileOf(header, 0)), HasSubstr("does not start with")) << header;
  }
  const std::string good = One("F32", "[2]", "[0, 8]");
  for (const std::string& header :
       std::vector<std::string>{"{", good + "}", good + "x", good + good, "{'a':1}", good.substr(1),
                                "{" + good + "}", "{\"a\":nan}", "{\"a\":{\"dtype\":1e999}}"}) {
    EXPECT_THAT(Refusal(FileOf(header, 8)),
                testing::AnyOf(HasSubstr("not JSON"), HasSubstr("does not start with")))
        << header;
  }
  EXPECT_THAT(Refusal(FileOf(good + std::string(1, '\0') + "garbage", 8)), HasSubstr("NUL"));
}

TEST_F(SafetensorsTest, RefusesNamesThatAreNotUtf8) {
  for (const std::string bad : {"\xFF", "\xC3\x28", "\xE2\x82", "\xED\xA0\x80", "\xC0\x80"}) {
    EXPECT_THAT(Refusal(FileOf("{\"" + bad + "\":" + Tensor("U8", "[1]", "[0, 1]") + "}", 1)),
                HasSubstr("not JSON"));
  }
  EXPECT_EQ(Refusal(FileOf("{\"größe\":" + Tensor("U8", "[1]", "[0, 1]") + "}", 1)), "accepted");
}

TEST_F(SafetensorsTest, RefusesWrongTypes) {
  struct Case {
    std::string tensor;
    std::string message;
  };
  const std::string ok = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  for (const auto& [tensor, message] : std::vector<Case>{
           {"7", "is 7, expected an object"},
           {"[]", "is an array, expected an object"},
           {"null", "is null"},
           {"{}", "has no dtype"},
           {R"({"dtype":"F32","shape":[2]})", "has no data_offsets"},
           {R"({"dtype":"F32","data_offsets":[0,8]})", "has no shape"},
           {R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})", "dtype is 4, expected a string"},
           {R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", "shape is 2, expected an array"},
           {R"({"dtype":"F32","shape":{},"data_offsets":[0,8]})", "shape is an object"},
           {R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})", "shape holds a string"},
           {R"({"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})", "shape holds an array"},
           {R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", "shape holds 2.0"},
           {R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "shape holds -2"},
           {R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]})",
            "shape holds 18446744073709551616"},
           {R"({"dtype":"F32","shape":[2],"data_offsets":"0,8"})", "data_offsets is a string"},
           {R"({"dtype":"F32","shape":[2],"data_offsets":[0,true]})", "data_offsets holds true"},
           {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8.0]})", "data_offsets holds 8.0"},
           {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8e0]})", "data_offsets holds 8e0"},
           {R"({"dtype":"F32","shape":[2],"data_offsets":[-1,7]})", "data_offsets holds -1"},
           {R"({"dtype":"F32","shape":[2],"data_offsets":[]})", "data_offsets has 0 values"},
           {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})", "data_offsets has 3 values"},
           {"{" + ok + R"(,"shape":[2]})", "shape comes twice"},
           {"{" + ok + R"(,"dtype":"F32"})", "dtype comes twice"},
       }) {
    EXPECT_THAT(Refusal(FileOf(R"({"the.tensor":)" + tensor + "}", 8)),
                AllOf(HasSubstr("\"the.tensor\""), HasSubstr(message)))
        << tensor;
  }
  EXPECT_THAT(Refusal(FileOf(R"({"__metadata__":{"a":1},"the.tensor":{)" + ok + "}}", 8)),
              HasSubstr("metadata \"a\" is 1, expected a string"));
  EXPECT_THAT(Refusal(FileOf(R"({"__metadata__":{"a":{"b":"c"}},"the.tensor":{)" + ok + "}}", 8)),
              HasSubstr("metadata \"a\" is an object"));
  EXPECT_THAT(Refusal(FileOf(R"({"__metadata__":["a"],"the.tensor":{)" + ok + "}}", 8)),
              HasSubstr("\"__metadata__\" is an array"));
}

// The reference implementation skips what it does not know, however deep.
TEST_F(SafetensorsTest, SkipsUnknownFieldsOfATensor) {
  const std::string extra = R"(,"x":{"dtype":5,"shape":[{"a":[null,1.5,"s",-1,true]}]},"y":[]})";
  std::string tensor = Tensor("F32", "[2]", "[0, 8]");
  tensor.pop_back();
  const auto file = OpenBytes(FileOf(R"({"t":)" + tensor + extra + "}", 8));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->entries()[0].dtype, "F32");
  EXPECT_EQ(file->entries()[0].shape, (std::vector<uint64_t>{2}));
}

TEST_F(SafetensorsTest, SurvivesHostileNesting) {
  constexpr size_t kDepth = 500'000;
  const std::string open(kDepth, '[');
  const std::string close(kDepth, ']');
  EXPECT_THAT(Refusal(FileOf(R"({"a":)" + open + close + "}", 0)), HasSubstr("\"a\" is an array"));
  std::string tensor = Tensor("F32", "[2]", "[0, 8]");
  tensor.pop_back();
  EXPECT_EQ(Refusal(FileOf(R"({"a":)" + tensor + R"(,"x":)" + open + close + "}}", 8)), "accepted");
  EXPECT_THAT(Refusal(FileOf(R"({"a":)" + tensor + R"(,"x":)" + open, 8)), HasSubstr("not JSON"));
}

TEST_F(SafetensorsTest, RefusesDuplicates) {
  const std::string a = R"("a":)" + Tensor("U8", "[1]", "[0, 1]");
  const std::string b = R"("a":)" + Tensor("U8", "[1]", "[1, 2]");
  EXPECT_THAT(Refusal(FileOf("{" + a + "," + b + "}", 2)), HasSubstr("\"a\" comes twice"));
  EXPECT_THAT(Refusal(FileOf(R"({"__metadata__":{"k":"1","k":"2"},)" + a + "}", 1)),
              HasSubstr("metadata \"k\" comes twice"));
  EXPECT_THAT(Refusal(FileOf(R"({"__metadata__":{},"__metadata__":{},)" + a + "}", 1)),
              HasSubstr("\"__metadata__\" comes twice"));
}

TEST_F(SafetensorsTest, RefusesBadOffsets) {
  struct Case {
    std::string offsets;
    std::string message;
  };
  for (const auto& [offsets, message] : std::vector<Case>{
           {"[8, 0]", "[8, 0] are not in order"},
           {"[0, 9223372036854775808]", "end at 9223372036854775808, but the data at 8"},
           {"[0, 18446744073709551615]", "end at 18446744073709551615, but the data at 8"},
           {"[9223372036854775808, 9223372036854775816]", "end at 9223372036854775816"},
           {"[0, 9]", "end at 9, but the data at 8"},
           {"[0, 7]", "takes 8 bytes, but data_offsets span 7"},
           {"[0, 4]", "takes 8 bytes, but data_offsets span 4"},
           {"[0, 0]", "takes 8 bytes, but data_offsets span 0"},
       }) {
    EXPECT_THAT(Refusal(FileOf(One("F32", "[2]", offsets), 8)),
                AllOf(HasSubstr("\"the.tensor\""), HasSubstr(message)))
        << offsets;
  }
}

TEST_F(SafetensorsTest, RefusesShapesThatOverflow) {
  for (const std::string shape :
       {"[4294967296, 4294967296]", "[4611686018427387904]", "[2, 9223372036854775808]",
        "[18446744073709551615, 18446744073709551615]", "[65536, 65536, 65536, 65536, 2]"}) {
    EXPECT_THAT(Refusal(FileOf(One("F32", shape, "[0, 8]"), 8)),
                AllOf(HasSubstr("\"the.tensor\""), HasSubstr("overflows")))
        << shape;
  }
  // Empty whatever the others are.
  EXPECT_THAT(Refusal(FileOf(One("F32", "[0, 9223372036854775808, 4]", "[0, 8]"), 8)),
              HasSubstr("takes 0 bytes"));
}

TEST_F(SafetensorsTest, RefusesHolesAndOverlaps) {
  const auto two = [](std::string_view a, std::string_view b) {
    return R"({"a":)" + Tensor("U8", "[4]", a) + R"(,"b":)" + Tensor("U8", "[4]", b) + "}";
  };
  EXPECT_EQ(Refusal(FileOf(two("[4, 8]", "[0, 4]"), 8)), "accepted");
  EXPECT_THAT(Refusal(FileOf(two("[0, 4]", "[5, 9]"), 9)),
              HasSubstr("\"b\" begins at 5 of the data, but the one before it ends at 4"));
  EXPECT_THAT(Refusal(FileOf(two("[0, 4]", "[3, 7]"), 7)), HasSubstr("begins at 3"));
  EXPECT_THAT(Refusal(FileOf(two("[0, 4]", "[0, 4]"), 4)), HasSubstr("begins at 0"));
  EXPECT_THAT(Refusal(FileOf(two("[1, 5]", "[5, 9]"), 9)), HasSubstr("\"a\" begins at 1"));
  EXPECT_THAT(Refusal(FileOf(two("[0, 4]", "[4, 8]"), 9)),
              HasSubstr("the tensors end at 8 of the data, but the file at 9"));
}

// A checkpoint may hold tensors that nobody here reads.
TEST_F(SafetensorsTest, KnowsTheSizesOfAllDtypes) {
  struct Case {
    std::string dtype;
    size_t bytes;  // of 4 elements
  };
  for (const auto& [dtype, bytes] : std::vector<Case>{
           {"F64", 32},    {"F32", 16},        {"F16", 8},         {"BF16", 8},    {"I64", 32},
           {"U64", 32},    {"I32", 16},        {"U32", 16},        {"I16", 8},     {"U16", 8},
           {"I8", 4},      {"U8", 4},          {"BOOL", 4},        {"C64", 32},    {"F8_E4M3", 4},
           {"F8_E5M2", 4}, {"F8_E4M3FNUZ", 4}, {"F8_E5M2FNUZ", 4}, {"F8_E8M0", 4}, {"F4", 2},
           {"F6_E2M3", 3}, {"F6_E3M2", 3}}) {
    const std::string end = std::to_string(bytes);
    EXPECT_EQ(Refusal(FileOf(One(dtype, "[4]", "[0, " + end + "]"), bytes)), "accepted") << dtype;
    EXPECT_THAT(Refusal(FileOf(One(dtype, "[8]", "[0, " + end + "]"), bytes)),
                HasSubstr("takes " + std::to_string(2 * bytes) + " bytes"))
        << dtype;
  }
  EXPECT_THAT(Refusal(FileOf(One("F4", "[3]", "[0, 2]"), 2)),
              HasSubstr("not a whole number of bytes"));
}

TEST_F(SafetensorsTest, KeepsTensorsOfUnknownDtype) {
  const auto file = OpenBytes(FileOf(One("Q9", "[1000]", "[0, 5]"), 5));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->entries()[0].dtype, "Q9");
  EXPECT_EQ(file->entries()[0].bytes.size(), 5u);
  // Where its bytes are is checked all the same.
  EXPECT_THAT(Refusal(FileOf(One("Q9", "[1000]", "[0, 6]"), 5)), HasSubstr("end at 6"));
}

TEST_F(SafetensorsTest, ShowsHostileNamesOnOneLine) {
  const std::string name = R"(evil\nname\u0000\"quoted\")" + std::string(100'000, 'x');
  const std::string message =
      Refusal(FileOf("{\"" + name + "\":" + Tensor("F32", "[2]", "[8, 0]") + "}", 8));
  EXPECT_THAT(message, HasSubstr(R"(evil\x0Aname\x00\"quoted\")"));
  EXPECT_LT(message.size(), 500u);
}

// CASES.md H18.
TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  const std::string whole = FileOf(R"({"a":)" + Tensor("U8", "[40]", "[0, 40]") + R"(,"b":)" +
                                       Tensor("F32", "[2]", "[40, 48]") + "}",
                                   48);
  ASSERT_EQ(Refusal(whole), "accepted");
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_NE(Refusal(std::string_view(whole).substr(0, size)), "accepted") << size;
  }
  EXPECT_NE(Refusal(whole + '\0'), "accepted");
}

}  // namespace
}  // namespace sluice
