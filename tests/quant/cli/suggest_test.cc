#include "quant/cli/suggest.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Suggest, EditDistance) {
  EXPECT_EQ(EditDistance("", ""), 0u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("weights", "weigths"), 2u);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("row", "rows"), 1u);
}

TEST(Suggest, TheNearestWithinTwo) {
  const std::vector<std::string> known = {"--weights", "--gate", "--up", "--down", "--output"};
  EXPECT_EQ(Nearest("--weigths", known), "--weights");
  EXPECT_EQ(Nearest("--gates", known), "--gate");
  EXPECT_EQ(Nearest("--outptu", known), "--output");
  EXPECT_EQ(Nearest("--frobnicate", known), "");
  EXPECT_EQ(Nearest("--weight-format", known), "");
  EXPECT_EQ(Nearest(std::string(100000, '-'), known), "");
  EXPECT_EQ(Nearest("--up", {}), "");
}

}  // namespace
}  // namespace sluice
