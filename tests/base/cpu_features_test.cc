#include "src/base/cpu_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Whether `body` returns true in a process of its own, in which SLUICE_DISABLE is `disable` and no
// feature has been asked for yet.
template <class Body>
bool WithDisabled(const char* disable, Body body) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("SLUICE_DISABLE", disable, /*overwrite=*/1);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

std::set<std::string_view> Names(const std::vector<CpuFeature>& features, bool CpuFeature::* flag) {
  std::set<std::string_view> names;
  for (const CpuFeature& feature : features) {
    if (feature.*flag) names.insert(feature.name);
  }
  return names;
}

TEST(CpuFeatures, NamesAreUniqueAndTheirOrderIsFixed) {
  const std::vector<CpuFeature> features = DetectFeatures("");
  std::set<std::string_view> names;
  for (const CpuFeature& feature : features) names.insert(feature.name);
  EXPECT_EQ(names.size(), features.size());
  const std::vector<CpuFeature> again = DetectFeatures(features.front().name);
  EXPECT_TRUE(std::ranges::equal(features, again, {}, &CpuFeature::name, &CpuFeature::name));
}

TEST(CpuFeatures, NothingIsHiddenUnlessNamed) {
  for (const char* disabled : {"", ",", ",,", "no_such_feature", "AVX2", "avx", "avx51"}) {
    EXPECT_THAT(Names(DetectFeatures(disabled), &CpuFeature::hidden), IsEmpty()) << disabled;
  }
}

TEST(CpuFeatures, HidingChangesNothingElse) {
  const std::vector<CpuFeature> all = DetectFeatures("");
  for (const CpuFeature& feature : all) {
    const std::vector<CpuFeature> less = DetectFeatures(feature.name);
    EXPECT_EQ(Names(less, &CpuFeature::present), Names(all, &CpuFeature::present));
    EXPECT_EQ(Names(less, &CpuFeature::hidden).contains(feature.name), feature.present)
        << feature.name;
  }
}

TEST(CpuFeatures, AListHidesAllItNames) {
  std::string list = ",";
  const std::vector<CpuFeature> all = DetectFeatures("");
  for (const CpuFeature& feature : all) list += std::string(feature.name) + ",,";
  EXPECT_EQ(Names(DetectFeatures(list), &CpuFeature::hidden), Names(all, &CpuFeature::present));
}

TEST(CpuFeatures, UnknownNamesAreReported) {
  const std::string known(DetectFeatures("").front().name);
  EXPECT_THAT(UnknownFeatures(""), IsEmpty());
  EXPECT_THAT(UnknownFeatures(known + "," + known), IsEmpty());
  EXPECT_THAT(UnknownFeatures("first," + known + ",,Second,"), ElementsAre("first", "Second"));
}

TEST(CpuFeatures, TheEnvironmentHidesThem) {
  for (const CpuFeature& feature : DetectFeatures("")) {
    EXPECT_TRUE(WithDisabled("", [&] { return HasFeature(feature.name) == feature.present; }))
        << feature.name;
    EXPECT_TRUE(WithDisabled(std::string(feature.name).c_str(), [&] {
      return !HasFeature(feature.name);
    })) << feature.name;
  }
  EXPECT_TRUE(WithDisabled("", [] { return !HasFeature("no_such_feature"); }));
}

// What builds on the hidden feature, of what this CPU has.
[[maybe_unused]] void ExpectHides(std::string_view name, std::set<std::string_view> expected) {
  const std::vector<CpuFeature> features = DetectFeatures(name);
  std::erase_if(expected, [&](std::string_view n) {
    return !Names(features, &CpuFeature::present).contains(n);
  });
  EXPECT_EQ(Names(features, &CpuFeature::hidden), expected) << name;
}

#if defined(__x86_64__)

TEST(CpuFeatures, WhatBuildsOnAHiddenFeatureIsHiddenToo) {
  ExpectHides("avx512_vnni", {"avx512_vnni", "avx512_bf16", "amx_int8"});
  ExpectHides("avx512", {"avx512", "avx512_vbmi", "avx512_vnni", "avx512_bf16", "amx_int8"});
  ExpectHides("avx_vnni", {"avx_vnni"});
  ExpectHides("avx2", {"avx2", "avx_vnni", "avx512", "avx512_vbmi", "avx512_vnni", "avx512_bf16",
                       "amx_int8"});
  ExpectHides("ssse3", {"ssse3", "sse4", "fma", "avx2", "avx_vnni", "avx512", "avx512_vbmi",
                        "avx512_vnni", "avx512_bf16", "amx_int8"});
}

// The compiler's run-time library asks the CPU on its own.
TEST(CpuFeatures, AgreeWithTheCompilersOwnDetection) {
  struct Known {
    std::string_view name;
    bool supported;
  };
  __builtin_cpu_init();
  const Known kCases[] = {
      {"ssse3", __builtin_cpu_supports("ssse3") != 0},
      {"sse4", __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("aes") != 0},
      {"fma", __builtin_cpu_supports("fma") != 0},
      {"avx2", __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0},
      {"avx_vnni", __builtin_cpu_supports("avxvnni") != 0},
      {"avx512",
       __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0},
      {"avx512_vbmi", __builtin_cpu_supports("avx512vbmi2") != 0},
      {"avx512_vnni", __builtin_cpu_supports("avx512vnni") != 0},
      {"avx512_bf16", __builtin_cpu_supports("avx512bf16") != 0},
  };
  const std::set<std::string_view> present = Names(DetectFeatures(""), &CpuFeature::present);
  for (const Known& known : kCases) {
    EXPECT_EQ(present.contains(known.name), known.supported) << known.name;
  }
}

#elif defined(__aarch64__)

TEST(CpuFeatures, WhatBuildsOnAHiddenFeatureIsHiddenToo) {
  ExpectHides("dotprod", {"dotprod", "i8mm", "bf16"});
  ExpectHides("sve", {"sve", "sve2"});
  ExpectHides("aes", {"aes"});
  ExpectHides("neon", {"neon", "aes", "dotprod", "i8mm", "bf16", "sve", "sve2"});
}

#endif

}  // namespace
}  // namespace sluice
