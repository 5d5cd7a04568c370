// What this CPU offers, which kernels follow from it, and the threads that run them.
#ifndef SLUICE_CPU_H_
#define SLUICE_CPU_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

// An instruction set that the library has kernels for.
struct TargetInfo {
  std::string_view name;   // as --target takes it: "AVX3_DL", "AVX2_VNNI", "NEON_DOTPROD", …
  bool available = false;  // this CPU and operating system run it, and nothing hides it
  std::string reason;      // why it is or is not available, for a person
};

// All targets compiled into this library, best first. The environment variable
// SLUICE_DISABLE=NAME[,NAME…] hides CPU features from this list (see CpuFeatures).
std::vector<TargetInfo> Targets();

// The CPU features the choice rests on, by name, in a fixed order.
struct CpuFeature {
  std::string_view name;  // "avx2", "avx512_vnni", "dotprod", …
  bool present = false;   // reported by the CPU and enabled by the operating system
  bool hidden = false;    // present, but named in SLUICE_DISABLE
};
std::vector<CpuFeature> CpuFeatures();

// The kernels' target for one format on this CPU: for one token, and for many.
struct KernelChoice {
  std::string_view decode;
  std::string_view batch;
};
KernelChoice ChooseKernels(WeightFormat format);

// The number of threads used when the caller names none: the performance cores among the CPUs this
// process may run on, but no more than its cgroup's CPU quota, rounded up. At least 1.
size_t DefaultThreads();

// A fixed set of threads that Forward splits its work over. Any number of blocks may share one
// pool, but only one Forward may use it at a time.
class ThreadPool {
 public:
  // `threads` counts the caller's own thread; 0 means DefaultThreads().
  static Expected<ThreadPool> Create(size_t threads);
  ThreadPool(ThreadPool&&) noexcept;
  ThreadPool& operator=(ThreadPool&&) noexcept;
  ~ThreadPool();

  size_t threads() const;

  class Impl;
  Impl* impl() const { return impl_.get(); }

 private:
  explicit ThreadPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_CPU_H_
