#include "src/base/cpu_features.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) || defined(__arm__)
#include <sys/auxv.h>
#endif

namespace sluice {
namespace {

// A feature, and the features that a CPU must also have for it to be of use (and that hide it when
// they are hidden).
struct Known {
  std::string_view name;
  bool (*present)();
  std::string_view needs;  // one other feature; the chain is followed
};

#if defined(__x86_64__)

struct Cpuid {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Cpuid Leaf(uint32_t leaf, uint32_t subleaf = 0) {
  Cpuid c;
  __get_cpuid_count(leaf, subleaf, &c.eax, &c.ebx, &c.ecx,
                    &c.edx);  // zeros if there is no such leaf
  return c;
}

bool Bit(uint32_t word, int bit) { return ((word >> bit) & 1) != 0; }

// The register state that the operating system saves on a context switch. A CPU feature whose state
// is not saved must not be used, whatever CPUID says of it.
uint64_t EnabledState() {
  if (!Bit(Leaf(1).ecx, 27)) return 0;  // no OSXSAVE
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}
bool AvxState() { return (EnabledState() & 0x6) == 0x6; }
bool Avx512State() { return (EnabledState() & 0xE6) == 0xE6; }

bool Avx512Foundation() {
  const uint32_t ebx = Leaf(7).ebx;  // F, DQ, CD, BW, VL: every AVX-512 CPU but Xeon Phi has all
  return Avx512State() && Bit(ebx, 16) && Bit(ebx, 17) && Bit(ebx, 28) && Bit(ebx, 30) &&
         Bit(ebx, 31);
}

bool AmxInt8() {
  constexpr uint64_t kTileState = uint64_t{3} << 17;
  const Cpuid leaf = Leaf(7);
  if ((EnabledState() & kTileState) != kTileState || !Bit(leaf.edx, 24) || !Bit(leaf.edx, 25)) {
    return false;
  }
  // Linux hands out the 8 KiB tile state only to processes that ask for it, once.
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

constexpr Known kKnown[] = {
    {"ssse3", [] { return Bit(Leaf(1).ecx, 9); }, ""},
    {"sse4",
     [] {
       return Bit(Leaf(1).ecx, 19) && Bit(Leaf(1).ecx, 20) && Bit(Leaf(1).ecx, 1) &&
              Bit(Leaf(1).ecx, 25);
     },
     "ssse3"},
    {"avx2",
     [] {
       return AvxState() && Bit(Leaf(7).ebx, 5) && Bit(Leaf(7).ebx, 3) && Bit(Leaf(7).ebx, 8) &&
              Bit(Leaf(1).ecx, 28) && Bit(Leaf(1).ecx, 29);
     },
     "fma"},
    {"fma", [] { return AvxState() && Bit(Leaf(1).ecx, 12); }, "sse4"},
    {"avx_vnni", [] { return AvxState() && Leaf(7).eax >= 1 && Bit(Leaf(7, 1).eax, 4); }, "avx2"},
    {"avx512", Avx512Foundation, "avx2"},
    {"avx512_vnni", [] { return Avx512State() && Bit(Leaf(7).ecx, 11); }, "avx512_vbmi"},
    {"avx512_vbmi",
     [] {
       const uint32_t ecx = Leaf(7).ecx;  // VBMI, VBMI2, GFNI, VAES, VPCLMUL, BITALG, VPOPCNTDQ
       return Avx512State() && Bit(ecx, 1) && Bit(ecx, 6) && Bit(ecx, 8) && Bit(ecx, 9) &&
              Bit(ecx, 10) && Bit(ecx, 12) && Bit(ecx, 14);
     },
     "avx512"},
    {"avx512_bf16", [] { return Avx512State() && Leaf(7).eax >= 1 && Bit(Leaf(7, 1).eax, 5); },
     "avx512_vnni"},
    {"amx_int8", AmxInt8, "avx512_vnni"},
};

#elif defined(__aarch64__)

bool HwCap(int bit) { return ((getauxval(AT_HWCAP) >> bit) & 1) != 0; }
bool HwCap2(int bit) { return ((getauxval(AT_HWCAP2) >> bit) & 1) != 0; }

constexpr Known kKnown[] = {
    {"neon", [] { return HwCap(1); }, ""},          {"aes", [] { return HwCap(3); }, "neon"},
    {"dotprod", [] { return HwCap(20); }, "neon"},  {"i8mm", [] { return HwCap2(13); }, "dotprod"},
    {"bf16", [] { return HwCap2(14); }, "dotprod"}, {"sve", [] { return HwCap(22); }, "neon"},
    {"sve2", [] { return HwCap2(1); }, "sve"},
};

#else  // 32-bit ARM

constexpr Known kKnown[] = {
    {"neon", [] { return ((getauxval(AT_HWCAP) >> 12) & 1) != 0; }, ""},
    {"vfpv4", [] { return ((getauxval(AT_HWCAP) >> 16) & 1) != 0; }, "neon"},
};

#endif

std::vector<std::string_view> Split(std::string_view list) {
  std::vector<std::string_view> names;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (comma > 0) names.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return names;
}

const Known* Find(std::string_view name) {
  const auto* it = std::ranges::find(kKnown, name, &Known::name);
  return it == std::end(kKnown) ? nullptr : it;
}

}  // namespace

std::vector<CpuFeature> DetectFeatures(std::string_view disabled) {
  const std::vector<std::string_view> names = Split(disabled);
  std::vector<CpuFeature> features;
  for (const Known& known : kKnown) {
    CpuFeature feature = {known.name, known.present(), false};
    for (const Known* k = &known; k != nullptr; k = Find(k->needs)) {
      if (std::ranges::find(names, k->name) != names.end()) feature.hidden = feature.present;
      if (k != &known && !k->present()) feature.present = false;
    }
    features.push_back(feature);
  }
  return features;
}

const std::vector<CpuFeature>& Features() {
  static const std::vector<CpuFeature> features = [] {
    const char* disabled = std::getenv("SLUICE_DISABLE");
    return DetectFeatures(disabled == nullptr ? "" : disabled);
  }();
  return features;
}

std::vector<std::string> UnknownFeatures(std::string_view disabled) {
  std::vector<std::string> unknown;
  for (const std::string_view name : Split(disabled)) {
    if (Find(name) == nullptr) unknown.emplace_back(name);
  }
  return unknown;
}

bool HasFeature(std::string_view name) {
  return std::ranges::any_of(
      Features(), [&](const CpuFeature& f) { return f.name == name && f.present && !f.hidden; });
}

std::vector<CpuFeature> CpuFeatures() { return Features(); }

}  // namespace sluice
