// How many threads this process can use to advantage.
#ifndef SLUICE_SRC_BASE_DEFAULT_THREADS_H_
#define SLUICE_SRC_BASE_DEFAULT_THREADS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace sluice {

// The performance cores among `cpus` (the process's affinity), but no more than the CPU quota of
// the process's cgroup (v2 `cpu.max` or v1 `cpu.cfs_quota_us`, of it and of every group above it),
// rounded up; at least 1. A pool larger than the quota spins against itself: 45 times slower in
// ollama/ollama#17916. `root` is prefixed to /sys and /proc paths, for tests.
size_t ThreadsFor(const std::vector<int>& cpus, const std::string& root);

// Likewise with the slow cores: how many threads can run at the same time.
size_t CpusFor(const std::vector<int>& cpus, const std::string& root);

// The CPUs' worth of time that the cgroup quota allows, 1.5 for instance; nullopt if it is
// unlimited.
std::optional<double> CpuQuota(const std::string& root);

// The CPUs that the calling process may run on.
std::vector<int> AffinityCpus();

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_DEFAULT_THREADS_H_
