// Which instruction-set extensions kernels may use.
#ifndef SLUICE_SRC_BASE_CPU_FEATURES_H_
#define SLUICE_SRC_BASE_CPU_FEATURES_H_

#include <string>
#include <string_view>
#include <vector>

#include "sluice/cpu.h"

namespace sluice {

// The features of this CPU that its operating system has enabled, less those that the
// comma-separated `disabled` names. Hiding a feature hides what builds on it (avx2 hides avx_vnni
// and all of avx512).
std::vector<CpuFeature> DetectFeatures(std::string_view disabled);

// Detected once, with SLUICE_DISABLE from the environment.
const std::vector<CpuFeature>& Features();

// Names in the comma-separated `disabled` that no CPU of this architecture has; a warning for them
// is the command's business.
std::vector<std::string> UnknownFeatures(std::string_view disabled);

// Whether kernels may use the feature `name`.
bool HasFeature(std::string_view name);

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_CPU_FEATURES_H_
