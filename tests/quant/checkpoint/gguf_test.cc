#include "quant/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace sluice {
namespace {

using test::BytesOf;
using test::GgufWriter;
using testing::AllOf;
using testing::HasSubstr;

Expected<Gguf> Parse(const std::string& file) {
  return Gguf::Parse("model.gguf", std::as_bytes(std::span(file)));
}

// The error of a file that must be refused, which must not take a second (of this process: others
// may have the machine).
std::string ErrorOf(const std::string& file) {
  const std::clock_t start = std::clock();
  const Expected<Gguf> gguf = Parse(file);
  EXPECT_LT(std::clock() - start, CLOCKS_PER_SEC);
  if (gguf) {
    ADD_FAILURE() << "was accepted";
    return "";
  }
  EXPECT_THAT(gguf.error().message, HasSubstr("model.gguf: "));
  EXPECT_EQ(gguf.error().message.find('\n'), std::string::npos);
  return gguf.error().message;
}

// A header of one tensor and no data.
std::string OneTensor(std::vector<uint64_t> shape, uint32_t type = test::kGgmlF32) {
  return GgufWriter().Tensor("t", std::move(shape), type, "").Build();
}

TEST(Gguf, ReadsTensorsAndMetadata) {
  for (const uint32_t version : {2u, 3u}) {
    const std::string file = GgufWriter()
                                 .Version(version)
                                 .String("general.architecture", "llama")
                                 .U32("llama.block_count", 7)
                                 .Raw("signed", test::kGgufI32, BytesOf<int32_t>(-1))
                                 .Raw("fraction", test::kGgufF32, BytesOf(0.5f))
                                 .Strings("tokenizer.ggml.tokens", {"a", "", "longer"})
                                 .U32s("llama.feed_forward_length", {3, 4, 5})
                                 .F32("matrix", {2, 3}, {1, 2, 3, 4, 5, 6})
                                 .F32("vector", {2}, {7, 8})
                                 .Build();
    const Expected<Gguf> gguf = Parse(file);
    ASSERT_TRUE(gguf) << gguf.error().message;
    ASSERT_EQ(gguf->tensors().size(), 2u);
    const GgufTensor& matrix = gguf->tensors()[0];
    EXPECT_EQ(matrix.name, "matrix");
    EXPECT_EQ(matrix.shape, (std::vector<uint64_t>{2, 3}));
    EXPECT_EQ(matrix.format->name, "F32");
    ASSERT_EQ(matrix.bytes.size(), 24u);
    float last = 0;
    std::memcpy(&last, matrix.bytes.data() + 20, 4);
    EXPECT_EQ(last, 6.0f);
    EXPECT_EQ(gguf->tensors()[1].shape, (std::vector<uint64_t>{2}));

    EXPECT_EQ(**gguf->String("general.architecture"), "llama");
    EXPECT_EQ(**gguf->Unsigned("llama.block_count"), 7u);
    EXPECT_EQ(**gguf->UnsignedArray("llama.block_count"), (std::vector<uint64_t>{7}));
    EXPECT_EQ(**gguf->UnsignedArray("llama.feed_forward_length"), (std::vector<uint64_t>{3, 4, 5}));
    EXPECT_FALSE(gguf->Unsigned("absent")->has_value());
    EXPECT_FALSE(gguf->String("absent")->has_value());
    EXPECT_EQ(gguf->Find("tokenizer.ggml.tokens")->count, 3u);
    // Of the wrong type.
    EXPECT_FALSE(gguf->Unsigned("general.architecture"));
    EXPECT_FALSE(gguf->Unsigned("signed"));
    EXPECT_FALSE(gguf->Unsigned("fraction"));
    EXPECT_FALSE(gguf->Unsigned("llama.feed_forward_length"));
    EXPECT_FALSE(gguf->String("llama.block_count"));
    EXPECT_FALSE(gguf->String("tokenizer.ggml.tokens"));
  }
}

TEST(Gguf, HonoursTheAlignment) {
  for (const uint32_t alignment : {1u, 8u, 64u, 4096u}) {
    const std::string file =
        GgufWriter().Alignment(alignment).F32("a", {1}, {1.5f}).F32("b", {1}, {2.5f}).Build();
    const Expected<Gguf> gguf = Parse(file);
    ASSERT_TRUE(gguf) << gguf.error().message;
    float b = 0;
    std::memcpy(&b, gguf->tensors()[1].bytes.data(), 4);
    EXPECT_EQ(b, 2.5f) << alignment;
  }
}

TEST(Gguf, RefusesABadAlignment) {
  for (const uint32_t alignment : {0u, 3u, 48u}) {
    EXPECT_THAT(ErrorOf(GgufWriter().U32("general.alignment", alignment).Build()),
                HasSubstr("general.alignment is " + std::to_string(alignment)));
  }
  EXPECT_THAT(ErrorOf(GgufWriter().String("general.alignment", "32").Build()),
              HasSubstr("general.alignment is not"));
  // Larger than the file: the data would begin beyond it.
  EXPECT_THAT(
      ErrorOf(GgufWriter().U32("general.alignment", 1u << 31).F32("t", {1}, {1.0f}).Build()),
      HasSubstr("\"t\""));
}

TEST(Gguf, NamesVersionsThatItDoesNotRead) {
  EXPECT_THAT(ErrorOf(GgufWriter().Version(1).Build()), HasSubstr("version 1"));
  EXPECT_THAT(ErrorOf(GgufWriter().Version(4).Build()), HasSubstr("version 4"));
  EXPECT_THAT(ErrorOf(GgufWriter().Version(0).Build()), HasSubstr("version 0"));
  EXPECT_THAT(ErrorOf(GgufWriter().Version(0x03000000).Build()),
              HasSubstr("big-endian GGUF (version 3)"));
  EXPECT_THAT(ErrorOf("GGML" + GgufWriter().Build().substr(4)), HasSubstr("not a GGUF file"));
}

// H14: products that overflow, dimensions of 0, and data beyond the file.
TEST(Gguf, H14DimensionsAreMultipliedWithCare) {
  constexpr uint64_t kBig = uint64_t{1} << 32;
  const auto refused = [](std::vector<uint64_t> shape, const char* why) {
    EXPECT_THAT(ErrorOf(OneTensor(std::move(shape))), AllOf(HasSubstr("\"t\""), HasSubstr(why)));
  };
  refused({kBig, kBig}, "more than 64 bits");
  refused({2, uint64_t{1} << 63}, "more than 64 bits");
  refused({uint64_t{1} << 63, 2}, "more than 64 bits");
  refused({kBig, 1, kBig, 1}, "more than 64 bits");
  refused({5, 0}, "dimension 0 of tensor \"t\" is 0 (offset");
  refused({0, 5}, "dimension 1 of tensor \"t\" is 0 (offset");
  refused({~uint64_t{0}}, "more than 64 bits");
  refused({uint64_t{1} << 40}, "the file ends at");
  // A product that fits only because blocks are smaller than their values.
  EXPECT_THAT(ErrorOf(OneTensor({uint64_t{1} << 59, 32}, test::kGgmlQ40)),
              HasSubstr("more than 64 bits"));
  EXPECT_THAT(ErrorOf(OneTensor({2, 31}, test::kGgmlQ40)),
              AllOf(HasSubstr("rows of 31"), HasSubstr("blocks of 32")));
}

TEST(Gguf, H14OffsetsAreComparedWithTheFile) {
  const std::string data(64, '\0');
  const auto two = [&](uint64_t a, uint64_t b) {
    return GgufWriter()
        .Tensor("a", {16}, test::kGgmlF32, data, a)
        .Tensor("b", {16}, test::kGgmlF32, data, b)
        .Build();
  };
  EXPECT_TRUE(Parse(two(0, 64)));
  EXPECT_TRUE(Parse(two(64, 0)));
  EXPECT_THAT(ErrorOf(two(0, 96)), AllOf(HasSubstr("\"b\""), HasSubstr("the file ends at")));
  // Sums beyond 2^64.
  EXPECT_THAT(ErrorOf(two(0, ~uint64_t{31})), HasSubstr("the file ends at"));
  EXPECT_THAT(ErrorOf(two(~uint64_t{63}, 64)), HasSubstr("the file ends at"));
  EXPECT_THAT(ErrorOf(two(0, 65)), HasSubstr("not a multiple of 32"));
  EXPECT_THAT(ErrorOf(two(0, 32)),
              AllOf(HasSubstr("\"a\" ends at 64"), HasSubstr("\"b\" begins at 32")));
  EXPECT_THAT(ErrorOf(two(64, 64)), HasSubstr("begins at 64"));
}

// H15: headers of a few bytes that promise the world.
TEST(Gguf, H15CountsAndLengthsAreBoundedByTheFile) {
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  EXPECT_THAT(ErrorOf(GgufWriter().Counts(kHuge, 0).Header()),
              AllOf(HasSubstr("number of tensors at offset 8"), HasSubstr(std::to_string(kHuge))));
  EXPECT_THAT(ErrorOf(GgufWriter().Counts(0, kHuge).Header()),
              HasSubstr("number of metadata values at offset 16"));
  EXPECT_THAT(ErrorOf(GgufWriter().Counts(0, 1).Header() + BytesOf(kHuge) + "abcdef"),
              AllOf(HasSubstr("metadata key at offset 32"), HasSubstr(std::to_string(kHuge))));
  EXPECT_THAT(ErrorOf(GgufWriter().Raw("k", test::kGgufString, BytesOf(kHuge)).Build()),
              HasSubstr("metadata string at offset"));
  EXPECT_THAT(ErrorOf(GgufWriter().Counts(1, 0).Header() + BytesOf(kHuge) + std::string(40, 'x')),
              HasSubstr("tensor's name at offset 32"));
  for (const uint32_t type : {test::kGgufU32, test::kGgufString, 0u}) {
    EXPECT_THAT(
        ErrorOf(GgufWriter().Raw("k", test::kGgufArray, BytesOf(type) + BytesOf(kHuge)).Build()),
        HasSubstr("array's length at offset"));
  }
  // count · size would wrap to a few bytes.
  EXPECT_THAT(ErrorOf(GgufWriter()
                          .Raw("k", test::kGgufArray, BytesOf(test::kGgufU64) + BytesOf(kHuge / 4))
                          .Build()),
              HasSubstr("array's length"));
}

TEST(Gguf, H15RanksTypesAndNamesAreChecked) {
  EXPECT_THAT(ErrorOf(OneTensor({1, 1, 1, 1, 1})), HasSubstr("\"t\" has 5 dimensions (offset"));
  EXPECT_THAT(ErrorOf(OneTensor({})), HasSubstr("0 dimensions"));
  EXPECT_THAT(ErrorOf(OneTensor({1}, 9999)),
              AllOf(HasSubstr("\"t\""), HasSubstr("unknown type 9999 (offset")));
  EXPECT_THAT(ErrorOf(GgufWriter().Raw("k", 99, "12345678").Build()),
              AllOf(HasSubstr("metadata type at offset 33"), HasSubstr("99")));
  EXPECT_THAT(ErrorOf(GgufWriter()
                          .Raw("k", test::kGgufArray,
                               BytesOf(uint32_t{99}) + BytesOf<uint64_t>(1) + "12345678")
                          .Build()),
              AllOf(HasSubstr("element type at offset"), HasSubstr("99")));
  EXPECT_THAT(ErrorOf(GgufWriter().F32("t", {1}, {1}).F32("t", {1}, {1}).Build()),
              HasSubstr("tensor \"t\" at offset"));
  EXPECT_THAT(ErrorOf(GgufWriter().U32("k", 1).U32("k", 2).Build()), HasSubstr("occurs twice"));
  const std::string_view nul("bl\0k", 4);
  EXPECT_THAT(ErrorOf(GgufWriter().F32(nul, {1}, {1}).Build()), HasSubstr("contains a NUL"));
  EXPECT_THAT(ErrorOf(GgufWriter().U32(nul, 1).Build()), HasSubstr("contains a NUL"));
  EXPECT_THAT(ErrorOf(GgufWriter().F32("", {1}, {1}).Build()), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf(GgufWriter().F32(std::string(65, 'n'), {1}, {1}).Build()),
              HasSubstr("65 bytes"));
  EXPECT_TRUE(Parse(GgufWriter().F32(std::string(64, 'n'), {1}, {1}).Build()));
  EXPECT_THAT(ErrorOf(GgufWriter().U32(std::string(65536, 'n'), 1).Build()),
              HasSubstr("65536 bytes"));
}

// H15: an array in an array, in an array, 10 000 deep.
TEST(Gguf, H15NestedArraysAreRefusedAtOnce) {
  std::string value;
  for (int depth = 0; depth < 10'000; ++depth)
    value += BytesOf(test::kGgufArray) + BytesOf<uint64_t>(1);
  EXPECT_THAT(ErrorOf(GgufWriter().Raw("deep", test::kGgufArray, value).Build()),
              AllOf(HasSubstr("\"deep\""), HasSubstr("array of arrays")));
}

// H18: cut anywhere, a file is refused and the error says where it ends.
TEST(Gguf, H18EveryTruncationIsRefused) {
  const std::string whole = GgufWriter()
                                .String("general.architecture", "llama")
                                .Strings("tokens", {"a", "bc"})
                                .U32s("widths", {1, 2})
                                .F32("a", {8}, std::vector<float>(8, 1.0f))
                                .F32("b", {8}, std::vector<float>(8, 2.0f))
                                .Build();
  ASSERT_TRUE(Parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(Parse(whole.substr(0, size))) << size;
  }
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() - 1)),
              AllOf(HasSubstr("\"b\""), HasSubstr("ends at " + std::to_string(whole.size() - 1))));
}

}  // namespace
}  // namespace sluice
