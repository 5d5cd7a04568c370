// H21 of the cases that broke others: more threads than the quota allows spin against each other.
#include "src/base/default_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <string>
#include <vector>

#include "sluice/cpu.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

const std::vector<int> kEightCpus = {0, 1, 2, 3, 4, 5, 6, 7};

// A /proc and /sys of our own.
class DefaultThreadsTest : public testing::Test {
 protected:
  void Put(const std::string& path, const std::string& content) {
    const std::string file = dir_.File(path);
    std::filesystem::create_directories(std::filesystem::path(file).parent_path());
    test::WriteBytes(file, content);
  }
  size_t Threads(const std::vector<int>& cpus = kEightCpus) {
    return ThreadsFor(cpus, dir_.path());
  }

  test::TempDir dir_;
};

TEST_F(DefaultThreadsTest, WithoutCgroupsAllCpus) {
  EXPECT_EQ(Threads(), 8u);
  EXPECT_EQ(Threads({3}), 1u);
  EXPECT_EQ(Threads({}), 1u);
}

TEST_F(DefaultThreadsTest, QuotaOfVersion2IsRoundedUp) {
  Put("proc/self/cgroup", "0::/\n");
  const std::pair<const char*, size_t> kCases[] = {
      {"100000 100000", 1}, {"max 100000", 8},     {"50000 100000", 1},
      {"150000 100000", 2}, {"200000 100000", 2},  {"200001 100000", 3},
      {"1000 100000", 1},   {"9900000 100000", 8}, {"300000 50000", 6},
  };
  for (const auto& [cpu_max, threads] : kCases) {
    Put("sys/fs/cgroup/cpu.max", std::string(cpu_max) + "\n");
    EXPECT_EQ(Threads(), threads) << cpu_max;
  }
}

TEST_F(DefaultThreadsTest, WhatIsNoQuotaIsNoLimit) {
  Put("proc/self/cgroup", "0::/\n");
  for (const char* cpu_max : {"", "max", "x y", "-1 100000", "0 100000", "100000 0", "100000"}) {
    Put("sys/fs/cgroup/cpu.max", cpu_max);
    EXPECT_EQ(Threads(), 8u) << cpu_max;
  }
  for (const char* cgroup : {"", "\n", "nonsense", "0:", "0::", ":::\n"}) {
    Put("proc/self/cgroup", cgroup);
    EXPECT_EQ(Threads(), 8u) << cgroup;
  }
}

TEST_F(DefaultThreadsTest, QuotaOfVersion1) {
  Put("proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/b\n");
  Put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  Put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(Threads(), 8u);
  Put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(Threads(), 3u);
  // Other controllers' groups have no say, nor has one whose name only begins with "cpu".
  Put("proc/self/cgroup", "5:cpuset:/a\n4:cpuacct:/a\n");
  EXPECT_EQ(Threads(), 8u);
}

TEST_F(DefaultThreadsTest, TheSmallestQuotaOfAllGroupsAboveCounts) {
  Put("proc/self/cgroup", "0::/system.slice/app.service/worker\n");
  const std::string base = "sys/fs/cgroup/system.slice";
  Put(base + "/app.service/worker/cpu.max", "max 100000\n");
  EXPECT_EQ(Threads(), 8u);
  Put(base + "/cpu.max", "600000 100000\n");
  EXPECT_EQ(Threads(), 6u);
  Put(base + "/app.service/cpu.max", "400000 100000\n");
  EXPECT_EQ(Threads(), 4u);
  Put(base + "/app.service/worker/cpu.max", "500000 100000\n");
  EXPECT_EQ(Threads(), 4u);
  Put("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(Threads(), 2u);
  Put(base + "/other.service/cpu.max", "100000 100000\n");  // not above this process
  EXPECT_EQ(Threads(), 2u);
}

TEST_F(DefaultThreadsTest, TheSmallerOfBothVersionsCounts) {
  Put("proc/self/cgroup", "3:cpu:/a\n0::/b\n");
  Put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  Put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "500000\n");
  EXPECT_EQ(Threads(), 5u);
  Put("sys/fs/cgroup/b/cpu.max", "300000 100000\n");
  EXPECT_EQ(Threads(), 3u);
}

// In a container without a namespace of its own, the group's path is the host's and not mounted
// here, but its quota is at the mount's root.
TEST_F(DefaultThreadsTest, GroupThatIsMountedElsewhere) {
  Put("proc/self/cgroup", "4:cpu,cpuacct:/docker/0123abcd\n");
  Put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(Threads(), 2u);
}

TEST_F(DefaultThreadsTest, OnlyPerformanceCoresCount) {
  const auto capacity = [&](int cpu, const char* value) {
    Put("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity", value);
  };
  for (const int cpu : {0, 1, 2, 3}) capacity(cpu, "446\n");
  for (const int cpu : {4, 5, 6}) capacity(cpu, "980\n");
  capacity(7, "1024\n");
  EXPECT_EQ(Threads(), 4u);
  EXPECT_EQ(Threads({0, 1, 2}), 3u) << "the fastest that this process may use";
  EXPECT_EQ(Threads({0, 1, 7}), 1u);
  capacity(4, "768\n");  // three quarters
  EXPECT_EQ(Threads(), 4u);
  capacity(4, "767\n");
  EXPECT_EQ(Threads(), 3u);
  EXPECT_EQ(CpusFor(kEightCpus, dir_.path()), 8u) << "all of which can run";
  Put("proc/self/cgroup", "0::/\n");
  Put("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(Threads(), 2u) << "and no more than the quota";
  EXPECT_EQ(CpusFor(kEightCpus, dir_.path()), 2u);
}

TEST_F(DefaultThreadsTest, CapacitiesThatAreNotAllKnownAreIgnored) {
  Put("sys/devices/system/cpu/cpu0/cpu_capacity", "1024\n");
  EXPECT_EQ(Threads(), 8u);
}

TEST(AffinityCpus, FollowsTheAffinityOfTheProcess) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const std::vector<int> cpus = AffinityCpus();
  ASSERT_EQ(cpus.size(), static_cast<size_t>(CPU_COUNT(&before)));
  for (const int cpu : cpus) EXPECT_TRUE(CPU_ISSET(cpu, &before)) << cpu;

  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus.back(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_THAT(AffinityCpus(), testing::ElementsAre(cpus.back()));
  EXPECT_EQ(DefaultThreads(), 1u);
  EXPECT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace sluice
