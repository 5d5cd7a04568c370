// Writing plain safetensors files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/file/safetensors.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class SafetensorsWriterTest : public testing::Test {
 protected:
  test::TempDir dir_;
  std::string path_ = dir_.File("out.safetensors");
};

TEST_F(SafetensorsWriterTest, WhatIsWrittenIsRead) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                       {"a \"key\"\n", "größe \\ \x01"}};
  const Status status =
      WriteSafetensors(path_,
                       {{"x", "F32", {2, 1}},
                        {"n \"ame", "U8", {3}},
                        {"none", "BF16", {4, 0}},
                        {"scalar", "I16", {}}},
                       {Bytes("12345678"), Bytes("abc"), Bytes(""), Bytes("zz")}, metadata);
  ASSERT_TRUE(status) << status.error().message;
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata(), metadata);
  EXPECT_EQ(file->entries().size(), 4u);
  const SafetensorsEntry* name = file->Find("n \"ame");
  ASSERT_NE(name, nullptr);
  EXPECT_EQ(std::memcmp(name->bytes.data(), "abc", 3), 0);
  EXPECT_EQ(file->Find("x")->shape, (std::vector<uint64_t>{2, 1}));
  EXPECT_TRUE(file->Find("scalar")->shape.empty());
  EXPECT_EQ(file->Find("x")->bytes.data(), file->entries()[0].bytes.data());
}

TEST_F(SafetensorsWriterTest, TheFirstTensorIsAligned) {
  for (size_t length = 0; length < 70; ++length) {
    const auto header = SafetensorsHeader({{std::string(length, 'n'), "U8", {1}}}, {});
    ASSERT_TRUE(header);
    EXPECT_EQ(header->size() % 64, 0u);
    uint64_t stored = 0;
    std::memcpy(&stored, header->data(), sizeof(stored));
    EXPECT_EQ(stored + 8, header->size());
  }
}

TEST_F(SafetensorsWriterTest, RefusesWhatNoReaderTakes) {
  const auto refusal = [&](std::vector<SafetensorsTensor> tensors) -> std::string {
    const auto header = SafetensorsHeader(tensors, {});
    return header ? "accepted" : header.error().message;
  };
  EXPECT_THAT(refusal({{"a", "U8", {1}}, {"a", "U8", {1}}}), HasSubstr("\"a\" comes twice"));
  EXPECT_THAT(refusal({{"__metadata__", "U8", {1}}}), HasSubstr("comes twice"));
  // They become the same text.
  EXPECT_THAT(refusal({{"\xFF", "U8", {1}}, {"\xFE", "U8", {1}}}), HasSubstr("comes twice"));
  EXPECT_THAT(refusal({{"a", "Q9", {1}}}), HasSubstr("unknown dtype \"Q9\""));
  EXPECT_THAT(refusal({{"a", "F32", {1ull << 32, 1ull << 32}}}), HasSubstr("overflows"));
  const uint64_t half = 1ull << 60;
  EXPECT_THAT(refusal({{"a", "U8", {half}}, {"b", "F64", {half}}, {"c", "F64", {half}}}),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal({{std::string(kMaxSafetensorsHeader, 'n'), "U8", {1}}}),
              HasSubstr("the format allows 100000000"));
}

TEST_F(SafetensorsWriterTest, SizesMustMatch) {
  const auto message = [](const Status& status) {
    return status ? "accepted" : status.error().message;
  };
  EXPECT_THAT(message(WriteSafetensors(path_, {{"a", "F32", {2}}}, {Bytes("1234567")})),
              HasSubstr(path_ + ": tensor \"a\": 7 bytes given, F32 [2] takes 8"));
  EXPECT_THAT(message(WriteSafetensors(path_, {{"a", "F32", {2}}}, {})),
              HasSubstr("1 tensors described, 0 given"));
  EXPECT_THAT(dir_.List(), IsEmpty());
}

TEST_F(SafetensorsWriterTest, TheWriterWantsEveryTensorOnce) {
  auto writer = SafetensorsWriter::Create(path_, {{"a", "U8", {1}}, {"b", "U8", {1}}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->Add(Bytes("1")));
  EXPECT_THAT(writer->Finish().error().message, HasSubstr("tensor \"b\" is missing"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_TRUE(writer->Add(Bytes("2")));
  EXPECT_THAT(writer->Add(Bytes("3")).error().message, HasSubstr("all 2 tensors are written"));
  ASSERT_TRUE(writer->Finish());
  EXPECT_THAT(dir_.List(), ElementsAre("out.safetensors"));
  EXPECT_THAT(test::ReadBytes(path_), testing::EndsWith("12"));
}

TEST_F(SafetensorsWriterTest, MetadataOfTheSameLengthMayBeReplaced) {
  auto writer = SafetensorsWriter::Create(path_, {{"a", "U8", {1}}}, {{"sum", "0000"}});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->Add(Bytes("1")));
  EXPECT_FALSE(writer->ReplaceMetadata({{"sum", std::string(100, '1')}}));
  ASSERT_TRUE(writer->ReplaceMetadata({{"sum", "1234"}}));
  ASSERT_TRUE(writer->Finish());
  const auto file = SafetensorsFile::Open(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata().at("sum"), "1234");
}

}  // namespace
}  // namespace sluice
