// Running a test on every kernel set that this CPU can run.
#ifndef SLUICE_TESTS_SUPPORT_KERNEL_TARGETS_H_
#define SLUICE_TESTS_SUPPORT_KERNEL_TARGETS_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <vector>

#include "src/kernels/kernels.h"

namespace sluice::test {

inline std::vector<const Kernels*> AttainableKernels() {
  std::vector<const Kernels*> all;
  for (const RegisteredKernels& entry : AllKernels()) {
    if (entry.available) all.push_back(entry.kernels);
  }
  return all;
}

// ‖a − b‖ / ‖b‖; NaN where one side has a NaN and the other has not.
inline double RelativeL2(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  if (error == 0) return 0;
  return std::sqrt(error / norm);
}

// Index of the first element whose bits differ, or -1.
inline ptrdiff_t FirstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]))
      return static_cast<ptrdiff_t>(i);
  }
  return -1;
}

// What a target owes the reference: the same bits with FMA, a relative L2 of 1e-3 without.
inline bool Agrees(const Kernels& kernels, const std::vector<float>& got,
                   const std::vector<float>& want) {
  if (kernels.exact) return FirstDifference(got, want) < 0;
  return got.size() == want.size() && RelativeL2(got, want) <= 1e-3;
}

}  // namespace sluice::test

namespace sluice {
inline void PrintTo(const Kernels& kernels, std::ostream* os) { *os << kernels.target; }
}  // namespace sluice

#endif  // SLUICE_TESTS_SUPPORT_KERNEL_TARGETS_H_
