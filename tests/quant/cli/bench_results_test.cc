// The warning of a busy machine, on samples made up for it.
#include "quant/cli/bench_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kBusy =
    "the machine was busy: in 1 of 2 rows the median is more than twice the minimum; these "
    "figures are not its speed";

BenchCase Case(std::vector<double> seconds) {
  BenchCase c;
  c.tokens = c.threads = 1;
  c.seconds = std::move(seconds);
  return c;
}

TEST(BusyWarning, TheMedianAgainstTheMinimum) {
  EXPECT_EQ(BusyWarning({Case({1, 1, 1.1})}), "");
  EXPECT_EQ(BusyWarning({Case({1, 2, 9})}), "");  // one slow sample is what medians are for
  EXPECT_EQ(BusyWarning({Case({1, 1, 1}), Case({3, 1, 2.1})}), kBusy);
  EXPECT_THAT(BusyWarning({Case({5, 1, 5})}), HasSubstr("in 1 of 1 row the"));
  EXPECT_EQ(BusyWarning({Case({7})}), "");
  EXPECT_EQ(BusyWarning({}), "");
}

TEST(BusyWarning, StandsUnderTheTableAndInJson) {
  BenchResults results;
  results.blocks.push_back(*RandomBlock(32, 32, {WeightType::kInt4, 32}, std::nullopt));
  results.cases = {Case({1, 1, 1}), Case({1, 1, 1})};
  EXPECT_THAT(BenchText(results), Not(HasSubstr("busy")));
  EXPECT_EQ(nlohmann::json::parse(BenchJson(results))["busy"], false);
  results.cases[1] = Case({1, 3, 3});
  EXPECT_THAT(BenchText(results), testing::EndsWith(std::string("\n\n") + kBusy + "\n"));
  EXPECT_EQ(nlohmann::json::parse(BenchJson(results))["busy"], true);
}

}  // namespace
}  // namespace sluice
