// What this CPU is called.
#ifndef SLUICE_SRC_BASE_CPU_NAME_H_
#define SLUICE_SRC_BASE_CPU_NAME_H_

#include <string>

namespace sluice {

// The model name that /proc/cpuinfo gives; on ARM, which has none, the board's name and the cores',
// "Raspberry Pi 5 Model B Rev 1.0 (4x Cortex-A76)". "unknown CPU" if the system tells neither.
// `root` is prefixed to /proc paths, for tests. One line, for reports.
std::string CpuName(const std::string& root = "");

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_CPU_NAME_H_
