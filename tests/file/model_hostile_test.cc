// Files whose container is sound and whose description or tensors are not what a packed model
// needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sluice/model.h"
#include "src/file/model_description.h"
#include "tests/file/forged_model.h"
#include "tests/file/sample_model.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using nlohmann::json;
using test::ForgedModel;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class ModelHostileTest : public testing::Test {
 protected:
  static ForgedModel WriteSample(const std::string& path) {
    test::Random random;
    EXPECT_TRUE(test::MixedModel(random).Write(path));
    return ForgedModel(path);
  }

  Error OpenError() {
    const auto model = Model::Open(path_);
    if (model) return {ErrorCode::kInvalidArgument, "accepted"};
    EXPECT_THAT(model.error().message, AllOf(HasSubstr(path_), Not(HasSubstr("\n"))));
    return model.error();
  }
  // The error of the sample after `edit`, all checksums right.
  Error Edited(const std::function<void(ForgedModel&)>& edit) {
    ForgedModel forged(original_);
    edit(forged);
    forged.Write(path_);
    return OpenError();
  }

  test::TempDir dir_;
  std::string path_ = dir_.File("model.safetensors");
  const ForgedModel original_ = WriteSample(path_);
};

using Edit = std::function<void(ForgedModel&)>;

struct Case {
  Edit edit;
  std::string message;
};

// An edit of the description at a JSON pointer.
Edit Put(const std::string& pointer, json value) {
  return [=](ForgedModel& f) { f.description[json::json_pointer(pointer)] = value; };
}

Edit Erase(const std::string& pointer) {
  return [=](ForgedModel& f) {
    const json::json_pointer p(pointer);
    json& parent = f.description[p.parent_pointer()];
    if (parent.is_array()) {
      parent.erase(std::stoul(p.back()));
    } else {
      parent.erase(p.back());
    }
  };
}

TEST_F(ModelHostileTest, TheUneditedSampleOpens) {
  EXPECT_EQ(Edited([](ForgedModel&) {}).message, "accepted");
}

TEST_F(ModelHostileTest, OtherSafetensorsFilesAreNoModels) {
  ForgedModel forged = original_;
  forged.metadata.erase("format");
  forged.WriteMetadata(path_);
  EXPECT_THAT(OpenError().message, HasSubstr("not a packed model: metadata \"format\" is missing"));
  forged.metadata = {{"format", "pt"}};
  forged.WriteMetadata(path_);
  EXPECT_THAT(OpenError().message, HasSubstr("\"format\" is \"pt\", expected \"sluice\""));
  EXPECT_EQ(OpenError().code, ErrorCode::kInvalidArgument);
}

TEST_F(ModelHostileTest, BrokenMetadataIsRefused) {
  ForgedModel forged = original_;
  const auto refusal = [&](const std::string& key, const std::string& value) {
    forged = original_;
    if (value.empty()) {
      forged.metadata.erase(key);
    } else {
      forged.metadata[key] = value;
    }
    if (key == "sluice") forged.metadata["sluice_checksum"] = test::ChecksumOf(value);
    forged.WriteMetadata(path_);
    EXPECT_NE(OpenError().code, ErrorCode::kInvalidArgument);
    return OpenError().message;
  };
  EXPECT_THAT(refusal("sluice", ""), HasSubstr("metadata \"sluice\" is missing"));
  EXPECT_THAT(refusal("sluice", "{"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("sluice", "{} x"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("sluice", "[]"), HasSubstr("the description is an array"));
  EXPECT_THAT(refusal("sluice", "{}"), HasSubstr("has no \"layout\""));
  EXPECT_THAT(refusal("sluice", std::string(200'000, '[')), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("sluice", std::string(200'000, '[') + std::string(200'000, ']')),
              HasSubstr("the description is an array"));
  EXPECT_THAT(refusal("sluice_checksum", ""), HasSubstr("\"sluice_checksum\" says nothing"));
  EXPECT_THAT(refusal("sluice_checksum", "0123456789abcdef"), HasSubstr("0123456789abcdef"));
}

TEST(ModelMetadataTest, AHugeDescriptionIsNotParsed) {
  const std::string huge = "{}" + std::string(40'000'000, ' ');
  const auto parsed = ParseModelMetadata({{"format", "sluice"}, {"sluice", huge}});
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message, HasSubstr("40000002 bytes"));
}

TEST_F(ModelHostileTest, WhatALaterVersionMayKnowIsRefusedByName) {
  for (const auto& [edit, message] : std::vector<Case>{
           {Put("/layout_version", 2), R"(the layout is "R16K4" version 2, this library reads)"},
           {Put("/layout_version", 0), "version 0"},
           {Put("/layout_version", UINT64_MAX), "version 18446744073709551615"},
           {Put("/layout", "R32K8"), R"(the layout is "R32K8" version 1)"},
           {Put("/layers/0/matrices/gate/format", "qb2w:32"),
            R"(layers[0].matrices.gate: "format": unknown weight format "qb2w:32"; known: f32)"},
           {Put("/layers/0/matrices/up/requested", "qb4w:31"), R"("requested": unknown)"},
           {Put("/layers/1/activation", "swiglu_oai"), R"(unknown activation "swiglu_oai")"},
           {Put("/layers/1/activations/input", "column"), R"(activation format "column")"},
           {Put("/layers/0/matrices/router", json::object()), R"(unknown matrix "router")"},
           {Put("/layers/0/matrices/x\n", 5), R"(unknown matrix "x\x0A")"},
       }) {
    const Error error = Edited(edit);
    EXPECT_THAT(error.message, HasSubstr(message));
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << message;
  }
}

TEST_F(ModelHostileTest, WrongTypesAreRefused) {
  const std::vector<json> wrong = {nullptr, -1,  1.5,           1e300,         true,
                                   "text",  "1", json::array(), json::object()};
  const std::vector<std::string> numbers = {"/layout_version", "/layers/0/layer",
                                            "/layers/0/d_model", "/layers/0/d_ff",
                                            "/layers/0/matrices/up/shape/0"};
  for (const std::string& pointer : numbers) {
    for (const json& value : wrong) {
      const Error error = Edited(Put(pointer, value));
      EXPECT_EQ(error.code, ErrorCode::kCorrupt) << pointer << " " << value << error.message;
    }
  }
  const std::vector<std::string> others = {"/layout",
                                           "/architecture",
                                           "/layers",
                                           "/layers/1",
                                           "/layers/0/gated",
                                           "/layers/0/activation",
                                           "/layers/0/activations",
                                           "/layers/0/activations/hidden",
                                           "/layers/0/matrices",
                                           "/layers/0/matrices/up",
                                           "/layers/0/matrices/up/name",
                                           "/layers/0/matrices/up/bias_name",
                                           "/layers/0/matrices/up/format",
                                           "/layers/0/matrices/up/shape",
                                           "/layers/0/matrices/up/checksums",
                                           "/layers/0/matrices/up/checksums/weight"};
  for (const std::string& pointer : others) {
    for (const json& value : {json(7), json(nullptr)}) {
      const Error error = Edited(Put(pointer, value));
      EXPECT_EQ(error.code, ErrorCode::kCorrupt) << pointer << " " << value << error.message;
      EXPECT_THAT(error.message, HasSubstr(value.dump())) << pointer;
    }
    const Error error = Edited(Erase(pointer));
    EXPECT_NE(error.message, "accepted") << pointer;
  }
}

TEST_F(ModelHostileTest, ContradictionsNameTheTwoValues) {
  for (const auto& [edit, message] : std::vector<Case>{
           {Put("/layers", json::array()), "the model has no layers"},
           {Put("/layers/1/layer", 3), "layer 3 comes after layer 3"},
           {Put("/layers/1/layer", 2), "layer 2 comes after layer 3"},
           {Put("/layers/0/d_model", 34), "gate is [17, 33], the block needs [17, 34]"},
           {Put("/layers/0/d_ff", 1), "gate is [17, 33], the block needs [1, 33]"},
           {Put("/layers/0/gated", false), "gate is there, but the block is ungated"},
           {Put("/layers/1/gated", true), "gate is missing, but the block is gated"},
           {Erase("/layers/0/matrices/up"), "up is missing"},
           {Erase("/layers/1/matrices/down"), "down is missing"},
           {Put("/layers/0/matrices/up/shape", {17, 33, 1}), "not an array of two"},
           {Put("/layers/0/matrices/up/shape", {17}), "not an array of two"},
           {Put("/layers/0/matrices/up/shape", {0, 33}), "up: the matrix is empty: [0, 33]"},
           {Put("/layers/0/matrices/up/shape", {17, 131073}), "at most 131072 columns"},
           {Put("/layers/0/matrices/up/shape", {33, 17}), "up is [33, 17], the block needs"},
           {Put("/layers/0/activations/input", "f32"), "activations f32 (input)"},
           {Put("/layers/1/activations/input", "row"), "activations row (input)"},
           {Put("/layers/0/matrices/up/name", ""), "up has no name"},
           {Put("/layers/0/matrices/up/bias_name", ""), "\"bias_name\" is empty"},
           {Put("/layers/0/matrices/up/name", "model.layers.3.mlp.gate_proj.weight"),
            "layer 3: the name \"model.layers.3.mlp.gate_proj.weight\" comes twice"},
           {Put("/layers/1/matrices/up/name", "model.layers.3.mlp.gate_proj.bias"),
            "layer 7: the name \"model.layers.3.mlp.gate_proj.bias\" comes twice"},
           {Put("/layers/0/matrices/up/checksums/weight", "0123"), "expected 16 hexadecimal"},
           {Erase("/layers/0/matrices/up/checksums/scale"), "has no \"scale\""},
       }) {
    const Error error = Edited(edit);
    EXPECT_THAT(error.message, HasSubstr(message));
    EXPECT_THAT(error.code, testing::AnyOf(ErrorCode::kCorrupt, ErrorCode::kUnsupported));
  }
}

// Where size_t has 32 bits, such numbers are no sizes at all.
TEST_F(ModelHostileTest, NumbersBeyondAnyModelAreRefused) {
  constexpr bool kWide = sizeof(size_t) == 8;
  const auto or_no_size = [](const std::string& message) {
    return HasSubstr(kWide ? message : "integer");
  };
  const std::string max = "18446744073709551615";
  EXPECT_THAT(Edited(Put("/layers/0/d_ff", UINT64_MAX)).message,
              or_no_size("gate is [17, 33], the block needs [" + max + ", 33]"));
  EXPECT_THAT(Edited(Put("/layers/1/layer", UINT64_MAX)).message,
              or_no_size("tensor \"layers." + max + ".up.weight\" is missing"));
  const std::string shape = "/layers/0/matrices/up/shape";
  EXPECT_THAT(Edited(Put(shape, {uint64_t{1} << 33, 33})).message,
              or_no_size("at most 4294967296 rows"));
  EXPECT_THAT(Edited(Put(shape, {UINT64_MAX, UINT64_MAX})).message, or_no_size(max));
  EXPECT_THAT(Edited(Put(shape, {uint64_t{1} << 31, 131072})).message,
              HasSubstr(kWide ? "up is [2147483648, 131072]" : "too large for this machine"));
}

TEST_F(ModelHostileTest, TensorsThatDoNotFitTheDescriptionAreNamed) {
  const auto resize = [](const std::string& name, size_t bytes, std::vector<uint64_t> shape) {
    return [=](ForgedModel& f) {
      f.bytes(name).resize(bytes);
      f.tensor(name).shape = shape;
    };
  };
  const auto rename = [](const std::string& from, const std::string& to) {
    return [=](ForgedModel& f) { f.tensor(from).name = to; };
  };
  for (const auto& [edit, message] : std::vector<Case>{
           {rename("layers.3.up.scale", "x"), "tensor \"layers.3.up.scale\" is missing"},
           {rename("layers.7.down.weight", "layers.7.Down.weight"),
            "tensor \"layers.7.down.weight\" is missing"},
           {resize("layers.3.up.weight", 2048 - 64, {2048 - 64}),
            "tensor \"layers.3.up.weight\" is \"U8\" [1984], its matrix takes U8 [2048]"},
           {resize("layers.3.up.weight", 2048 + 64, {2112}), "is \"U8\" [2112]"},
           {resize("layers.3.up.weight", 2048, {2, 1024}), "is \"U8\" [2, 1024]"},
           {resize("layers.3.up.weight", 2048, {2048, 1}), "is \"U8\" [2048, 1]"},
           {resize("layers.3.up.weight", 0, {0}), "is \"U8\" [0]"},
           {resize("layers.3.down.scale", 96, {48}),
            "\"layers.3.down.scale\" is \"BF16\" [48], its matrix takes BF16 [64]"},
           {[](ForgedModel& f) { f.tensor("layers.3.up.weight").dtype = "I8"; },
            "is \"I8\" [2048], its matrix takes U8 [2048]"},
           {[](ForgedModel& f) { f.tensor("layers.3.gate.scale").dtype = "F16"; },
            "is \"F16\" [64], its matrix takes BF16 [64]"},
           {[](ForgedModel& f) { f.tensors.push_back({"extra", "U8", {64}, std::string(64, 0)}); },
            "tensor \"extra\" belongs to no layer"},
           // Formats with other sizes, and with other planes.
           {Put("/layers/0/matrices/up/format", "qc4w"), "its matrix takes U8 [1024]"},
           {Put("/layers/0/matrices/gate/format", "qb4w:64"), "takes BF16 [32]"},
           {Erase("/layers/0/matrices/up/bias_name"),
            "tensor \"layers.3.up.bias\" belongs to no layer"},
           {[](ForgedModel& f) {
              f.matrix(1, "up")["bias_name"] = "b";
              f.matrix(1, "up")["checksums"]["bias"] = std::string(16, '0');
            },
            "tensor \"layers.7.up.bias\" is missing"},
           {Put("/layers/1/layer", 8), "tensor \"layers.8.up.weight\" is missing"},
       }) {
    ForgedModel forged(original_);
    edit(forged);
    forged.Write(path_);  // without Seal, which needs every tensor
    const Error error = OpenError();
    EXPECT_THAT(error.message, HasSubstr(message));
    EXPECT_EQ(error.code, ErrorCode::kCorrupt) << error.message;
  }
}

// 64 bytes that another tensor lacks: every tensor has its size, none its place.
TEST_F(ModelHostileTest, TensorsOffTheirAlignmentAreNamed) {
  ForgedModel forged(original_);
  forged.Write(path_);
  std::string bytes = test::ReadBytes(path_);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  bytes.insert(8 + length, 1, ' ');
  ++length;
  std::memcpy(bytes.data(), &length, sizeof(length));
  test::WriteBytes(path_, bytes);
  EXPECT_THAT(OpenError().message, AllOf(HasSubstr("\"layers.3.gate.weight\" is at byte"),
                                         HasSubstr("which 64 does not divide")));
}

TEST_F(ModelHostileTest, UnknownKeysAreIgnored) {
  EXPECT_EQ(Edited([](ForgedModel& f) {
              f.description["tool"] = {{"name", "other"}};
              f.matrix(0, "up")["note"] = json::array({1, 2});
              f.metadata["author"] = "someone";
            }).message,
            "accepted");
}

}  // namespace
}  // namespace sluice
