// The one list of kernels: production, tests and benchmarks all take them from here.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sluice/cpu.h"
#include "src/base/cpu_features.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"

namespace sluice {

// Defined by the files in targets/.
#if defined(__x86_64__)
namespace N_AVX3_DL::amx {
const Kernels& GetKernels();
}
namespace N_AVX3_ZEN4::plain {
const Kernels& GetKernels();
}
namespace N_AVX3_DL::plain {
const Kernels& GetKernels();
}
namespace N_AVX3::plain {
const Kernels& GetKernels();
}
namespace N_AVX2::vnni {
const Kernels& GetKernels();
}
namespace N_AVX2::plain {
const Kernels& GetKernels();
}
namespace N_SSE4::plain {
const Kernels& GetKernels();
}
namespace N_SSSE3::plain {
const Kernels& GetKernels();
}
namespace N_SSE2::plain {
const Kernels& GetKernels();
}
#elif defined(__aarch64__)
namespace N_NEON_WITHOUT_AES::i8mm {
const Kernels& GetKernels();
}
namespace N_NEON_WITHOUT_AES::dotprod {
const Kernels& GetKernels();
}
namespace N_NEON::plain {
const Kernels& GetKernels();
}
namespace N_NEON_WITHOUT_AES::plain {
const Kernels& GetKernels();
}
#elif defined(__arm__)
namespace N_NEON_WITHOUT_AES::plain {
const Kernels& GetKernels();
}
#endif

namespace {

struct Compiled {
  const Kernels& (*get)();
  std::string_view needs;  // the feature that brings all others the target uses; "": none
  bool batch_only = false;
};

// Best first. Sanitized builds compile one set of each kind: see CMakeLists.txt.
constexpr Compiled kCompiled[] = {
#if defined(__x86_64__)
#ifndef SLUICE_SANITIZED_TARGETS
    {N_AVX3_DL::amx::GetKernels, "amx_int8", /*batch_only=*/true},
    {N_AVX3_ZEN4::plain::GetKernels, "avx512_bf16"},
    {N_AVX3_DL::plain::GetKernels, "avx512_vnni"},
    {N_AVX3::plain::GetKernels, "avx512"},
#endif
    {N_AVX2::vnni::GetKernels, "avx_vnni"},
    {N_AVX2::plain::GetKernels, "avx2"},
    {N_SSE4::plain::GetKernels, "sse4"},
#ifndef SLUICE_SANITIZED_TARGETS
    {N_SSSE3::plain::GetKernels, "ssse3"},
    {N_SSE2::plain::GetKernels, ""},
#endif
#elif defined(__aarch64__)
    {N_NEON_WITHOUT_AES::i8mm::GetKernels, "i8mm"},
    {N_NEON_WITHOUT_AES::dotprod::GetKernels, "dotprod"},
    {N_NEON::plain::GetKernels, "aes"},
    {N_NEON_WITHOUT_AES::plain::GetKernels, ""},
#elif defined(__arm__)
    {N_NEON_WITHOUT_AES::plain::GetKernels, "neon"},
#else
#error "No kernels for this architecture"
#endif
};

RegisteredKernels Describe(const Compiled& compiled) {
  RegisteredKernels entry;
  entry.kernels = &compiled.get();
  entry.batch_only = compiled.batch_only;
  if (compiled.needs.empty()) {
    entry.available = true;
    entry.reason = "every CPU of this architecture";
    return entry;
  }
  const auto& features = Features();
  const auto feature = std::ranges::find(features, compiled.needs, &CpuFeature::name);
  entry.available = feature->present && !feature->hidden;
  entry.reason = feature->hidden    ? std::string(compiled.needs) + " is hidden by SLUICE_DISABLE"
                 : feature->present ? "this CPU has " + std::string(compiled.needs)
                                    : "this CPU has no " + std::string(compiled.needs);
  return entry;
}

}  // namespace

std::span<const RegisteredKernels> AllKernels() {
  static const std::array entries = [] {
    std::array<RegisteredKernels, std::size(kCompiled)> all;
    std::ranges::transform(kCompiled, all.begin(), Describe);
    return all;
  }();
  return entries;
}

namespace {

Expected<KernelPair> BestKernels() {
  KernelPair best;
  for (const RegisteredKernels& entry : AllKernels()) {
    if (!entry.available) continue;
    if (best.batch == nullptr) best.batch = entry.kernels;
    if (best.decode == nullptr && !entry.batch_only) best.decode = entry.kernels;
  }
  if (best.decode == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                "this CPU has none of the instruction sets that there are "
                "kernels for");
  }
  return best;
}

}  // namespace

Expected<KernelPair> FindKernels(std::string_view target, WeightFormat format) {
  if (target.empty()) {
    SLUICE_ASSIGN(KernelPair best, BestKernels());
    // The matrix unit serves integers whose scales are constant along K.
    if (!format.quantized() || format.blocked()) best.batch = best.decode;
    return best;
  }
  std::string known;
  for (const RegisteredKernels& entry : AllKernels()) {
    const std::string_view name = entry.kernels->target;
    if (name == target) {
      if (entry.available) return KernelPair{entry.kernels, entry.kernels};
      return Fail(ErrorCode::kUnsupported, "target {} cannot run here: {}", name, entry.reason);
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown target \"{}\"; known: {}", target, known);
}

std::vector<TargetInfo> Targets() {
  std::vector<TargetInfo> targets;
  for (const RegisteredKernels& entry : AllKernels()) {
    targets.push_back({entry.kernels->target, entry.available, entry.reason});
  }
  return targets;
}

KernelChoice ChooseKernels(WeightFormat format) {
  const Expected<KernelPair> pair = FindKernels({}, format);
  if (!pair) return {};
  return {pair->decode->target, pair->batch->target};
}

}  // namespace sluice
