#include "quant/report/numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quant/report/text_table.h"

namespace sluice {
namespace {

TEST(Numbers, SignificantKeepsDigitsAndAvoidsExponents) {
  EXPECT_EQ(Significant(4.5), "4.50");
  EXPECT_EQ(Significant(0.0123456), "0.0123");
  EXPECT_EQ(Significant(99.96), "100");
  EXPECT_EQ(Significant(9.999), "10.0");
  EXPECT_EQ(Significant(-9.994), "-9.99");
  EXPECT_EQ(Significant(123456), "123456");
  EXPECT_EQ(Significant(3.14159, 5), "3.1416");
  EXPECT_EQ(Significant(3.1e-7), "3.10e-07");
  EXPECT_EQ(Significant(0), "0");
}

TEST(Numbers, WhatIsNotFiniteIsSaid) {
  EXPECT_EQ(Significant(std::numeric_limits<double>::quiet_NaN()), "n/a");
  EXPECT_EQ(Percent(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(Percent(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(Numbers, Percent) {
  EXPECT_EQ(Percent(0.0983), "9.83 %");
  EXPECT_EQ(Percent(0.000012), "0.00120 %");
  EXPECT_EQ(Percent(0), "0 %");
  EXPECT_EQ(Percent(1.5), "150 %");
}

TEST(Numbers, SizesChangeUnitWhereTheyWouldRoundTo1000) {
  EXPECT_EQ(Size(0), "0 B");
  EXPECT_EQ(Size(999), "999 B");
  EXPECT_EQ(Size(1000), "1.00 kB");
  EXPECT_EQ(Size(1493000), "1.49 MB");
  EXPECT_EQ(Size(999'600), "1.00 MB");
  EXPECT_EQ(Size(318'504'960), "319 MB");
  EXPECT_EQ(Size(4.2e13), "42.0 TB");
}

TEST(Numbers, Durations) {
  EXPECT_EQ(Duration(85.1e-6), "85.1 µs");
  EXPECT_EQ(Duration(0.00128), "1.28 ms");
  EXPECT_EQ(Duration(2), "2.00 s");
}

TEST(Numbers, Counts) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(79626240), "79,626,240");
  EXPECT_EQ(Plural(1, "token"), "1 token");
  EXPECT_EQ(Plural(0, "token"), "0 tokens");
}

TEST(Numbers, Ranges) {
  EXPECT_EQ(Ranges({}), "");
  EXPECT_EQ(Ranges({3}), "3");
  EXPECT_EQ(Ranges({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

TEST(TextTable, ColumnsAlignByCharactersNotBytes) {
  TextTable table({{"name", Align::kLeft}, {"time"}});
  EXPECT_TRUE(table.empty());
  table.AddRow({"a", "85.1 µs"});
  table.AddRow({"longer", "1.28 ms"});
  EXPECT_EQ(table.Text(),
            "  name       time\n"
            "  a       85.1 µs\n"
            "  longer  1.28 ms\n");
}

TEST(TextTable, NoTrailingSpaces) {
  TextTable table({{"a", Align::kLeft}, {"b", Align::kLeft}});
  table.AddRow({"x", ""});
  EXPECT_THAT(table.Text(), testing::Not(testing::HasSubstr(" \n")));
}

}  // namespace
}  // namespace sluice
