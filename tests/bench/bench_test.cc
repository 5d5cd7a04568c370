// What the benchmarks are made of: shapes, random blocks and their exact results, the check that a
// library has to pass, the limits' instruction mixes. Nothing here depends on time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "bench/block.h"
#include "bench/dram.h"
#include "bench/instructions.h"
#include "bench/library.h"
#include "bench/limits.h"
#include "bench/shapes.h"
#include "bench/team.h"
#include "sluice/cpu.h"
#include "tests/support/double_block.h"
#include "tests/support/temp_dir.h"

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;

const std::string kFolder = std::string(SLUICE_SOURCE_DIR) + "/bench/shapes";
const Shape kTiny = {"", 64, 96, 0};

BlockFormat Format(std::string_view name) { return *ParseBlockFormat(name); }

TEST(Shapes, NumbersModelsAndFiles) {
  EXPECT_EQ(*ParseShapes("576x1536", kFolder), (std::vector<Shape>{{"", 576, 1536, 0}}));
  EXPECT_EQ(*ParseShapes("Llama-2-7B", kFolder),
            (std::vector<Shape>{{"Llama-2-7B", 4096, 11008, 32}}));
  EXPECT_EQ(ParseShapes("acceptance", kFolder)->size(), 3u);
  for (const char* bad : {"", "576", "576x", "x1536", "0x1536", "576x1536x2", "no-such-model"}) {
    EXPECT_FALSE(ParseShapes(bad, kFolder).has_value()) << bad;
  }
}

TEST(Shapes, AFaultInAFileIsNamedWithItsLine) {
  const test::TempDir folder;
  const std::string path = folder.path() + "/shapes.txt";
  for (const char* line : {"a 1", "a b 2", "a 1 2 3 4", "a 0 2", "a 1 2 0", "a 1 2 x"}) {
    std::ofstream(path) << "# a comment\n\ngood 16 32 # and another\n" << line << "\n";
    const auto shapes = ReadShapes(path);
    ASSERT_FALSE(shapes.has_value()) << line;
    EXPECT_THAT(shapes.error().message, HasSubstr(":4:"));
  }
}

TEST(Shapes, ModelsHaveTheirNumberOfLayers) {
  const auto shapes = ParseShapes("llama", kFolder);
  ASSERT_TRUE(shapes.has_value());
  for (const Shape& shape : *shapes) EXPECT_GE(shape.layers, 16u) << shape.model;
  const test::TempDir folder;
  std::ofstream(folder.File("s.txt")) << "with 16 32 4\nwithout 16 32\n";
  EXPECT_EQ(*ReadShapes(folder.File("s.txt")),
            (std::vector<Shape>{{"with", 16, 32, 4}, {"without", 16, 32, 0}}));
}

TEST(Formats, DefaultActivationsHaveOneName) {
  EXPECT_EQ(Name(Format("qb4w:32+block")), "qb4w:32");
  EXPECT_EQ(Name(Format("qb4w:32+row")), "qb4w:32+row");
  EXPECT_EQ(Name(Format("qc8w+block")), "qc8w+block");
  EXPECT_EQ(Format("qc8w").used(), ActivationFormat::kRow);
  for (const char* bad : {"q4", "qb4w:32+", "qb4w:32+f32", "f32+row"}) {
    EXPECT_FALSE(ParseBlockFormat(bad).has_value()) << bad;
  }
}

TEST(Exact, IsTheFormulaInDoublePrecision) {
  for (const char* name : {"qb4w:32", "qb8w:32", "qc8w", "f32"}) {
    const PlainBlock block = RandomBlock(kTiny, Format(name));
    const std::vector<float> x = RandomTokens(kDistinctTokens, kTiny.d_model);
    const auto ring = PackedRing::Create(block, 2, PageKind::kSmall);
    ASSERT_TRUE(ring.has_value());
    const std::vector<double> want = test::DoubleBlock::From(ring->views()[1]).Forward(x);
    EXPECT_LT(test::RelativeL2(want, Exact(block, x).y), 1e-12) << name;
  }
}

// What is excused is what rounding does: a row whose largest value is the larger the worse.
TEST(Exact, ExpectsTheErrorOfOneScaleAToken) {
  constexpr size_t kCols = 512;
  const PlainBlock block = RandomBlock({"", kCols, 64}, Format("f32"));
  std::vector<float> x = RandomTokens(kDistinctTokens, kCols);
  const double usual = Exact(block, x).row_error;
  EXPECT_GT(usual, 0.003);
  EXPECT_LT(usual, 0.05);
  x[1] = 100;
  EXPECT_GT(Exact(block, x).row_error, 2 * usual);
}

// A library whose result a test chooses.
class FakeBlocks : public Blocks {
 public:
  FakeBlocks(std::vector<double> exact, std::function<void(MatrixView<float>)> fault)
      : exact_(std::move(exact)), fault_(std::move(fault)) {}
  Status Run(size_t, size_t, MatrixView<const float>, MatrixView<float> y) override {
    for (size_t i = 0; i < y.rows * y.cols; ++i) {
      y.data[i] = static_cast<float>(exact_[i % exact_.size()]);
    }
    fault_(y);
    return {};
  }
  uint64_t weight_bytes() const override { return 1; }
  std::string Describe() const override { return "fake"; }

 private:
  std::vector<double> exact_;
  std::function<void(MatrixView<float>)> fault_;
};

Status CheckWith(const std::function<void(MatrixView<float>)>& fault) {
  constexpr size_t kTokens = 19;
  const size_t d = kTiny.d_model;
  const PlainBlock block = RandomBlock(kTiny, Format("qb4w:32"));
  const std::vector<float> x = RandomTokens(kTokens, d);
  ExactResult exact = Exact(block, std::span(x).first(kDistinctTokens * d));
  exact.row_error = 0.02;
  FakeBlocks blocks(exact.y, fault);
  std::vector<float> y(kTokens * d);
  const Library library = {"fake", nullptr, /*excused_errors=*/1.5, false, nullptr};
  return Check(library, blocks, 0, 1, {x.data(), kTokens, d}, {y.data(), kTokens, d}, exact);
}

TEST(Check, PassesWhatIsRight) {
  EXPECT_TRUE(CheckWith([](MatrixView<float>) {}).has_value());
  EXPECT_TRUE(CheckWith([](MatrixView<float> y) {
                for (size_t i = 0; i < y.rows * y.cols; ++i) y.data[i] *= 1.02f;
              }).has_value());
}

TEST(Check, RefusesEachPlantedFault) {
  const std::vector<std::pair<const char*, std::function<void(MatrixView<float>)>>> faults = {
      {"5 % too large",
       [](auto y) {
         for (auto& v : y.row(3)) v *= 1.05f;
       }},
      {"wrong sign",
       [](auto y) {
         for (auto& v : y.row(0)) v = -v;
       }},
      {"the last token not computed",
       [](auto y) {
         for (auto& v : y.row(18)) v = 0;
       }},
      {"one value", [](auto y) { y.row(7)[5] += 100; }},
      {"NaN", [](auto y) { y.row(7)[5] = std::numeric_limits<float>::quiet_NaN(); }},
      {"infinity", [](auto y) { y.row(7)[5] = std::numeric_limits<float>::infinity(); }},
      {"tokens exchanged",
       [](auto y) { std::swap_ranges(y.row(1).begin(), y.row(1).end(), y.row(2).begin()); }},
  };
  for (const auto& [name, fault] : faults) {
    const Status status = CheckWith(fault);
    ASSERT_FALSE(status.has_value()) << name;
    EXPECT_THAT(status.error().message, HasSubstr("wrong result")) << name;
  }
}

// Every library that is built in, on the formats it takes, at awkward numbers of tokens.
TEST(Libraries, AllPassTheCheck) {
  std::vector<const Library*> libraries = {&Sluice()};
  for (const Library& rival : Rivals()) libraries.push_back(&rival);
  for (const char* name : {"qb4w:32", "qb4w:128+row", "qc4w", "qc8w", "qb8w:32"}) {
    const BlockFormat format = Format(name);
    const PlainBlock block = RandomBlock({"", 128, 160}, format);
    constexpr size_t kMost = 17;
    const std::vector<float> x = RandomTokens(kMost, block.d_model);
    const auto exact = Exact(block, std::span(x).first(kDistinctTokens * block.d_model));
    std::vector<float> y(kMost * block.d_model);
    for (const Library* library : libraries) {
      if (!library->takes(format)) continue;
      Request request;
      request.block = &block;
      request.copies = 3;
      request.threads = {1, 2};
      request.max_tokens = kMost;
      const auto blocks = library->create(request);
      ASSERT_TRUE(blocks.has_value()) << library->name << " " << blocks.error().message;
      EXPECT_GT((*blocks)->weight_bytes(), 3 * block.d_model * block.d_ff / 2) << library->name;
      for (const size_t tokens : {size_t{1}, size_t{2}, kMost}) {
        for (const size_t threads : request.threads) {
          const Status status =
              Check(*library, **blocks, tokens % 3, threads, {x.data(), tokens, block.d_model},
                    {y.data(), tokens, block.d_model}, exact);
          EXPECT_TRUE(status.has_value())
              << library->name << " " << name << " " << tokens << " tokens, " << threads
              << " threads: " << (status ? "" : status.error().message);
        }
      }
    }
  }
}

TEST(Mix, FollowsTheContract) {
  const auto mix = [](std::string_view name) {
    const BlockFormat format = Format(name);
    return MixOf(format.weights, format.used());
  };
  EXPECT_EQ(mix("qb4w:32"), Mix::kBlock32Both);
  EXPECT_EQ(mix("qb8w:32"), Mix::kBlock32Both);
  EXPECT_EQ(mix("qb4w:128"), Mix::kBlock32Both);
  EXPECT_EQ(mix("qb4w:32+row"), Mix::kBlock32);
  EXPECT_EQ(mix("qc8w+block"), Mix::kBlock32);
  EXPECT_EQ(mix("qb4w:64+row"), Mix::kBlock64);
  EXPECT_EQ(mix("qb4w:128+row"), Mix::kBlock128);
  EXPECT_EQ(mix("qc8w"), Mix::kDots);
}

TEST(Instructions, EveryLoopDoesWhatItCounts) {
  for (const DotInstruction& dot : DotInstructions()) {
    for (const auto loop : dot.loops) {
      if (loop == nullptr) continue;
      EXPECT_GT(loop(1), 0) << dot.name;
      EXPECT_EQ(loop(6), 6 * loop(1)) << dot.name;
    }
  }
  for (const FmaInstruction& fma : FmaInstructions()) EXPECT_GT(fma.loop(1), 0) << fma.name;
}

TEST(Instructions, TheChosenKernelsHaveALimit) {
  if (DotInstructions().empty()) GTEST_SKIP() << "this CPU has none of the instructions";
  for (const WeightFormat format : kWeightFormats) {
    if (!format.quantized()) continue;
    const std::string_view target = ChooseKernels(format).batch;
    EXPECT_NE(InstructionOf(target, Mix::kDots), nullptr) << target;
    EXPECT_NE(InstructionOf(target, Mix::kBlock32), nullptr) << target;
  }
  EXPECT_EQ(InstructionOf("no such target", Mix::kDots), nullptr);
}

TEST(Limits, AreMeasured) {
  Limits limits(size_t{1} << 20, PageKind::kSmall);
  for (const size_t threads : {size_t{1}, size_t{2}}) {
    const auto dram = limits.Dram(threads);
    ASSERT_TRUE(dram.has_value());
    EXPECT_GT(*dram, 0);
  }
  EXPECT_EQ(limits.Arithmetic(nullptr, Mix::kDots, 1), 0);
}

TEST(Team, AllThreadsRunOnce) {
  std::vector<int> runs(5);
  EXPECT_GE(RunTogether(runs.size(), [&](size_t thread) { ++runs[thread]; }), 0);
  EXPECT_EQ(runs, std::vector<int>(5, 1));
}

}  // namespace
}  // namespace sluice::bench
