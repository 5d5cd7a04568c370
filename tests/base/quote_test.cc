#include "src/base/quote.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(QuoteTest, KeepsPlainTextAndUtf8) {
  EXPECT_EQ(Quote(""), "\"\"");
  EXPECT_EQ(Quote("model.layers.0.mlp"), "\"model.layers.0.mlp\"");
  EXPECT_EQ(Quote("größe 名前"), "\"größe 名前\"");
}

TEST(QuoteTest, EscapesWhatWouldBreakALine) {
  EXPECT_EQ(Quote(std::string_view("a\nb\0c\x1B[1m\x7F", 10)), R"("a\x0Ab\x00c\x1B[1m\x7F")");
  EXPECT_EQ(Quote(R"(say "\")"), R"("say \"\\\"")");
}

TEST(QuoteTest, CutsLongTextInTheMiddle) {
  const std::string text(200, 'x');
  EXPECT_EQ(Quote(text), "\"" + text + "\"");
  EXPECT_EQ(Quote("begin" + std::string(1000, 'x') + "end"),
            "\"begin" + std::string(95, 'x') + "…" + std::string(97, 'x') + "end\"");
}

TEST(QuoteTest, CutsBetweenCharacters) {
  // Two bytes each, so that one of the cuts falls into a character wherever it begins.
  for (const std::string prefix : {"", "x"}) {
    std::string text = prefix;
    for (int i = 0; i < 300; ++i) text += "ß";
    const std::string quoted = Quote(text);
    const size_t cut = quoted.find("…");
    ASSERT_NE(cut, std::string::npos);
    EXPECT_EQ((cut - 1 - prefix.size()) % 2, 0u);
    EXPECT_EQ((quoted.size() - 1 - (cut + 3)) % 2, 0u);
  }
}

}  // namespace
}  // namespace sluice
