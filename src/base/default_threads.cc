#include "src/base/default_threads.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "sluice/cpu.h"

namespace sluice {
namespace {

std::optional<long long> ParseNumber(const std::string& text) {
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The CPUs that `quota` microseconds in each `period` amount to; nullopt: unlimited.
std::optional<double> QuotaCpus(std::optional<long long> quota, std::optional<long long> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;  // "max", -1, nonsense
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> QuotaOfV2(const std::string& directory) {
  std::istringstream line(FirstLine(directory + "/cpu.max"));
  std::string quota;
  std::string period;
  line >> quota >> period;
  return QuotaCpus(ParseNumber(quota), ParseNumber(period));
}

std::optional<double> QuotaOfV1(const std::string& directory) {
  return QuotaCpus(ParseNumber(FirstLine(directory + "/cpu.cfs_quota_us")),
                   ParseNumber(FirstLine(directory + "/cpu.cfs_period_us")));
}

// The smallest quota of the group at `base + group` and of every group above it up to `base`.
template <class QuotaOf>
std::optional<double> SmallestQuota(const std::string& base, std::filesystem::path group,
                                    QuotaOf quota_of) {
  std::optional<double> smallest;
  while (true) {
    const std::optional<double> quota = quota_of(base + group.string());
    if (quota) smallest = std::min(smallest.value_or(*quota), *quota);
    if (group.empty() || group == "/") return smallest;
    group = group.parent_path();
  }
}

// On big.LITTLE systems the kernel publishes each core's capacity, 1024 for the fastest. Cores
// below three quarters of the fastest are left out: a row range given to one would finish last.
size_t PerformanceCores(const std::vector<int>& cpus, const std::string& root) {
  std::vector<long long> capacities;
  for (const int cpu : cpus) {
    const std::string path =
        root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity";
    if (const auto capacity = ParseNumber(FirstLine(path))) capacities.push_back(*capacity);
  }
  if (capacities.size() != cpus.size() || capacities.empty()) return cpus.size();
  const long long best = *std::ranges::max_element(capacities);
  return static_cast<size_t>(
      std::ranges::count_if(capacities, [&](long long c) { return 4 * c >= 3 * best; }));
}

}  // namespace

std::optional<double> CpuQuota(const std::string& root) {
  std::ifstream in(root + "/proc/self/cgroup");  // lines "0::/path" (v2) or "N:cpu,cpuacct:/path"
  std::optional<double> smallest;
  const auto take = [&](std::optional<double> quota) {
    if (quota) smallest = std::min(smallest.value_or(*quota), *quota);
  };
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      take(SmallestQuota(root + "/sys/fs/cgroup", group, QuotaOfV2));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      take(SmallestQuota(root + "/sys/fs/cgroup/cpu", group, QuotaOfV1));
    }
  }
  return smallest;
}

size_t ThreadsFor(const std::vector<int>& cpus, const std::string& root) {
  return std::clamp<size_t>(PerformanceCores(cpus, root), 1, CpusFor(cpus, root));
}

size_t CpusFor(const std::vector<int>& cpus, const std::string& root) {
  const size_t all = cpus.size();
  const std::optional<double> quota = CpuQuota(root);
  if (!quota || *quota >= static_cast<double>(all)) return std::max<size_t>(all, 1);
  return std::max<size_t>(static_cast<size_t>(std::ceil(*quota)), 1);
}

std::vector<int> AffinityCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

size_t DefaultThreads() { return ThreadsFor(AffinityCpus(), ""); }

}  // namespace sluice
