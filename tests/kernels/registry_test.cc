// Listing, choosing and forcing kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "sluice/cpu.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

TEST(Registry, BestAvailableIsTheDefault) {
  const auto all = AllKernels();
  const auto best = std::ranges::find_if(all, [](const auto& e) { return e.available; });
  ASSERT_NE(best, all.end()) << "no target runs here";
  const auto pair = FindKernels({}, {WeightType::kInt8, 0});
  ASSERT_TRUE(pair);
  EXPECT_TRUE(pair->decode == best->kernels || best->batch_only);
  EXPECT_NE(pair->batch, nullptr);
}

TEST(Registry, NamesAreUniqueAndListed) {
  std::set<std::string_view> names;
  for (const RegisteredKernels& entry : AllKernels()) {
    EXPECT_TRUE(names.insert(entry.kernels->target).second) << entry.kernels->target;
    EXPECT_FALSE(entry.reason.empty());
  }
  EXPECT_EQ(Targets().size(), names.size());
}

TEST(Registry, ForcingWhatCannotRunIsAnError) {
  for (const RegisteredKernels& entry : AllKernels()) {
    const auto pair = FindKernels(entry.kernels->target, {WeightType::kInt4, 32});
    if (entry.available) {
      ASSERT_TRUE(pair) << pair.error().message;
      EXPECT_EQ(pair->decode->target,
                entry.batch_only ? pair->decode->target : entry.kernels->target);
    } else {
      ASSERT_FALSE(pair);
      EXPECT_EQ(pair.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(pair.error().message.find(entry.reason), std::string::npos) << pair.error().message;
    }
  }
}

TEST(Registry, UnknownTargetListsTheKnown) {
  const auto pair = FindKernels("AVX9", {WeightType::kInt4, 32});
  ASSERT_FALSE(pair);
  for (const RegisteredKernels& entry : AllKernels()) {
    EXPECT_NE(pair.error().message.find(entry.kernels->target), std::string::npos);
  }
}

TEST(Registry, ChoiceNamesTargets) {
  for (const WeightFormat format : kWeightFormats) {
    const KernelChoice choice = ChooseKernels(format);
    EXPECT_FALSE(choice.decode.empty()) << Name(format);
    EXPECT_FALSE(choice.batch.empty()) << Name(format);
  }
}

}  // namespace
}  // namespace sluice
