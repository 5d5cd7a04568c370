// What is recorded of the device, from trees of files (tests/data/devices), and when a run is
// invalid.
#include "quant/cli/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "quant/cli/device_files.h"
#include "quant/cli/device_log.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Folder(const std::string& device) {
  return std::string(SLUICE_TEST_DATA) + "/devices/" + device;
}

// What a run on the device at `root` records, without what is measured and differs each time.
Json Recorded(const std::string& root, std::optional<std::string> changed_from = {}) {
  DeviceLog log(DeviceFiles(root), {1, 4}, std::move(changed_from));
  Json json = log.Finish().json;
  for (Json& sample : json["samples"]) {
    EXPECT_GE(sample["seconds"].get<double>(), 0);
    EXPECT_GT(sample["measured_hz"].get<double>(), 1e5);
    sample.erase("seconds");
    sample.erase("measured_hz");
  }
  return json;
}

class Devices : public testing::TestWithParam<const char*> {};

TEST_P(Devices, GiveTheExpectedContext) {
  const Json recorded = Recorded(Folder(GetParam()) + "/root");
  const std::string path = Folder(GetParam()) + "/expected.json";
  if (std::getenv("SLUICE_WRITE_GOLDEN") != nullptr) std::ofstream(path) << JsonText(recorded);
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  EXPECT_EQ(JsonText(recorded), JsonText(Json::parse(in)));
}

INSTANTIATE_TEST_SUITE_P(All, Devices,
                         testing::Values("pi3", "pi4", "pi5", "zero2w", "pc", "container"),
                         [](const auto& device) { return std::string(device.param); });

// A device that tells nothing: null everywhere, and nothing made up.
TEST(Device, WhatItDoesNotTellIsNull) {
  const test::TempDir empty;
  const Json json = Recorded(empty.path());
  for (const char* key : {"board", "revision", "firmware", "bootloader", "kernel", "page_bytes",
                          "memory_bytes", "throttled", "valid", "dram"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  for (const char* key : {"cpus", "quota_cpus", "default"}) {
    EXPECT_TRUE(json["threads"].at(key).is_null()) << key;
  }
  for (const char* key : {"before", "after", "changed"}) {
    EXPECT_TRUE(json["governor"].at(key).is_null()) << key;
  }
  for (const char* key : {"before", "after", "other_cpus"}) {
    EXPECT_TRUE(json["load"].at(key).is_null()) << key;
  }
  for (const char* key : {"celsius", "kernel_hz", "firmware_hz", "throttled"}) {
    EXPECT_TRUE(json["samples"][0].at(key).is_null()) << key;
  }
}

TEST(Device, NonsenseIsNullToo) {
  const test::TempDir tree;
  const auto put = [&](const std::string& path, const std::string& content) {
    const std::filesystem::path file = tree.File(path);
    std::filesystem::create_directories(file.parent_path());
    test::WriteBytes(file, content);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  };
  put("usr/bin/vcgencmd", "#!/bin/sh\necho nonsense=0x\n");
  put("proc/self/status", "Cpus_allowed_list:\t0-x\n");
  put("proc/stat", "cpu 1 2\n");
  put("proc/loadavg", "\n");
  put("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n");
  put("sys/class/thermal/thermal_zone0/temp", "hot\n");
  put("sys/kernel/mm/transparent_hugepage/enabled", "always\n");
  const DeviceFiles files(tree.path());
  const Device device = ReadDevice(files);
  EXPECT_FALSE(device.default_threads.has_value());
  EXPECT_FALSE(device.huge_pages.has_value());
  EXPECT_FALSE(device.firmware.has_value());
  const DeviceState state = ReadDeviceState(files);
  EXPECT_FALSE(state.throttled.has_value());
  EXPECT_FALSE(state.celsius.has_value());
  EXPECT_FALSE(state.firmware_hz.has_value());
  EXPECT_FALSE(state.load.has_value());
  EXPECT_FALSE(state.busy_cpu_seconds.has_value());
  put("usr/bin/vcgencmd",
      "#!/bin/sh\necho throttled=0x0\nexit 1\n");  // no permission, for instance
  EXPECT_FALSE(ReadDeviceState(files).throttled.has_value());
}

TEST(Device, AChangedGovernorIsSaid) {
  EXPECT_EQ(Recorded(Folder("pi5") + "/root")["governor"]["changed"], false);
  const Json changed = Recorded(Folder("pi5") + "/root", "ondemand")["governor"];
  EXPECT_EQ(changed["changed"], true);
  EXPECT_EQ(changed["changed_from"], "ondemand");
  EXPECT_EQ(changed["before"], "performance");
}

TEST(Device, ThrottleWordsAreDecoded) {
  EXPECT_THAT(ThrottledNow(0), IsEmpty());
  EXPECT_THAT(ThrottledNow(0x50005), ElementsAre("under-voltage", "throttled"));
  EXPECT_THAT(ThrottledSinceStart(0x50005), ElementsAre("under-voltage", "throttled"));
  EXPECT_THAT(ThrottledNow(0xa0000), IsEmpty());
  EXPECT_THAT(ThrottledSinceStart(0xa000f),
              ElementsAre("frequency capped", "soft temperature limit"));
  EXPECT_THAT(ThrottledNow(0xf), testing::SizeIs(4));
}

TEST(Verdict, ARunIsValidIfNothingHappenedInIt) {
  const auto valid = [](std::vector<std::optional<uint32_t>> words) {
    return JudgeThrottling(words).valid;
  };
  EXPECT_EQ(valid({0x0, 0x0, 0x0}), true);
  EXPECT_EQ(valid({0x50000, 0x50000}), true) << "before this run";
  EXPECT_EQ(valid({0x0, 0x4, 0x40000}), false) << "at a sample";
  EXPECT_EQ(valid({0x0, 0x0, 0x20000}), false) << "between samples: the firmware remembers";
  EXPECT_EQ(valid({0x50005, 0x50005}), false) << "before, during and after";
  EXPECT_EQ(valid({0x0, std::nullopt, 0x8}), false);
  EXPECT_EQ(valid({std::nullopt, std::nullopt}), std::nullopt);
  EXPECT_EQ(valid({}), std::nullopt);
}

TEST(Verdict, SaysWhatHappenedAndWhatCouldNotBeSeen) {
  const std::vector<std::optional<uint32_t>> words = {0x10000, 0x10004, 0x70000};
  const ThrottleVerdict verdict = JudgeThrottling(words);
  EXPECT_THAT(verdict.reasons,
              ElementsAre("throttled during the run", "frequency capped between two samples"));
  EXPECT_THAT(verdict.seen_before, ElementsAre("under-voltage"));
}

// The firmware's word changes while the run lasts.
TEST(DeviceLog, AnEventInARunMakesItInvalid) {
  const test::TempDir tree;
  std::filesystem::copy(Folder("pi5") + "/root", tree.path(),
                        std::filesystem::copy_options::recursive);
  DeviceLog log(DeviceFiles(tree.path()), {1}, std::nullopt);
  {
    std::ofstream(tree.File("usr/bin/vcgencmd")) << "#!/bin/sh\necho throttled=0x40000\n";
  }
  const DeviceLog::Summary summary = log.Finish();
  EXPECT_EQ(summary.valid, false);
  EXPECT_EQ(summary.json["valid"], false);
  EXPECT_EQ(summary.json["throttled"]["before"]["word"], "0x0");
  EXPECT_EQ(summary.json["throttled"]["after"]["since_start"], Json::array({"throttled"}));
  EXPECT_EQ(summary.json["invalid_because"], Json::array({"throttled between two samples"}));
  EXPECT_THAT(summary.text, HasSubstr("INVALID: throttled between two samples"));
}

TEST(DeviceLog, SamplesAreNotTakenTooOften) {
  const test::TempDir empty;
  DeviceLog log(DeviceFiles(empty.path()), {1}, std::nullopt);
  for (int i = 0; i < 10; ++i) log.Sample();
  EXPECT_LE(log.Finish().json["samples"].size(), 3u);
}

// This very machine: whatever it is, something is found, and nothing fails.
TEST(DeviceLog, OfThisMachine) {
  DeviceLog log(DeviceFiles(""), {1}, std::nullopt);
  log.SetDram(1e9, 2e9, 2);
  const Json json = log.Finish().json;
  EXPECT_FALSE(json["kernel"].is_null());
  EXPECT_FALSE(json["memory_bytes"].is_null());
  EXPECT_EQ(json["dram"]["all_cores_gb_per_s"], 2.0);
  EXPECT_GE(json["threads"]["default"].get<size_t>(), 1u);
}

}  // namespace
}  // namespace sluice
