#include "quant/report/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace sluice {
namespace {

TEST(Printable, OrdinaryTextIsUntouched) {
  const std::string text = "model.layers.0 – ‖ŷ − y‖ 🙂 \"<&>'";
  EXPECT_EQ(Printable(text), text);
}

TEST(Printable, ControlsCannotReachTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[31mb\nc\td\x7f"), "a\\x1b[31mb\\x0ac\\x09d\\x7f");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xC2\x9B"), "\\xc2\\x9b");           // C1: CSI in one character
  EXPECT_EQ(Printable("\xE2\x80\xAE"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(Printable("\xE2\x80\xA8"), "\\xe2\\x80\\xa8");  // line separator
}

TEST(Printable, BytesThatAreNotUtf8AreShownAsSuch) {
  EXPECT_EQ(Printable("caf\xE9"), "caf\\xe9");
  EXPECT_EQ(Printable("\xC0\xAF"), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(Printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(Printable("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(Printable("\xE2\x82"), "\\xe2\\x82");  // cut short
}

TEST(Printable, WidthCountsCharacters) {
  EXPECT_EQ(DisplayWidth("85.1 µs"), 7u);
  EXPECT_EQ(DisplayWidth(""), 0u);
}

}  // namespace
}  // namespace sluice
