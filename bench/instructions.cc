#include "bench/instructions.h"

#include <algorithm>
#include <vector>

#include "sluice/cpu.h"

// The loops switch the compiler's target by GCC's pragmas. Clang has none like them, and builds
// without limits.
#if defined(__clang__)
#elif defined(__x86_64__)
#define SLUICE_BENCH_X86
#include <immintrin.h>
#elif defined(__aarch64__)
#define SLUICE_BENCH_ARM64
#include <arm_neon.h>
#endif

namespace sluice::bench {

#ifdef SLUICE_BENCH_X86
#define SLUICE_BENCH_REGISTER "v"

namespace {
using Ints512 = int32_t __attribute__((vector_size(64)));
using Floats512 = float __attribute__((vector_size(64)));
using Ints256 = int32_t __attribute__((vector_size(32)));
using Floats256 = float __attribute__((vector_size(32)));
}  // namespace

// Each set in a region that has its instructions and no others: with VNNI at hand a compiler may
// use it where it is not asked for. A wider region takes over what a narrower one has.
//
// Without VNNI: pairs to int16, pairs of those to int32, sum. In assembly, since the compiler would
// compute the product of unchanging operands once.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl")
namespace {
namespace maddubs512 {
using Ints = Ints512;
using Floats = Floats512;
constexpr size_t kMixChains = 10, kDotChains = 16, kValuesPerDot = 4;
inline Ints Dot(Ints sum, Ints w, Ints x) {
  __m512i pairs;
  asm volatile("vpmaddubsw %2, %1, %0" : "=v"(pairs) : "v"(w), "v"(x));
  return sum + Ints(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
inline Floats ToFloat(Ints sum) { return Floats(_mm512_cvtepi32_ps(__m512i(sum))); }
inline Floats Mul(Floats a, Floats b) { return a * b; }
inline Floats Fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
#include "bench/mix-inl.h"
}  // namespace maddubs512
}  // namespace
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vnni")
namespace {
namespace vnni512 {
using Ints = Ints512;
using Floats = Floats512;
constexpr size_t kMixChains = 12, kDotChains = 16, kValuesPerDot = 4;
inline Ints Dot(Ints sum, Ints w, Ints x) {
  return Ints(_mm512_dpbusd_epi32(__m512i(sum), __m512i(w), __m512i(x)));
}
using maddubs512::Fma;
using maddubs512::Mul;
using maddubs512::ToFloat;
#include "bench/mix-inl.h"
}  // namespace vnni512
}  // namespace
#pragma GCC pop_options

#undef SLUICE_BENCH_REGISTER
#define SLUICE_BENCH_REGISTER "x"

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace {
namespace maddubs256 {
using Ints = Ints256;
using Floats = Floats256;
constexpr size_t kMixChains = 5, kDotChains = 12, kValuesPerDot = 4;
inline Ints Dot(Ints sum, Ints w, Ints x) {
  __m256i pairs;
  asm volatile("vpmaddubsw %2, %1, %0" : "=x"(pairs) : "x"(w), "x"(x));
  return sum + Ints(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline Floats ToFloat(Ints sum) { return Floats(_mm256_cvtepi32_ps(__m256i(sum))); }
inline Floats Mul(Floats a, Floats b) { return a * b; }
inline Floats Fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
#include "bench/mix-inl.h"
}  // namespace maddubs256
}  // namespace
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma,avxvnni")
namespace {
namespace vnni256 {
using Ints = Ints256;
using Floats = Floats256;
constexpr size_t kMixChains = 5, kDotChains = 12, kValuesPerDot = 4;
inline Ints Dot(Ints sum, Ints w, Ints x) {
  return Ints(_mm256_dpbusd_avx_epi32(__m256i(sum), __m256i(w), __m256i(x)));
}
using maddubs256::Fma;
using maddubs256::Mul;
using maddubs256::ToFloat;
#include "bench/mix-inl.h"
}  // namespace vnni256
}  // namespace
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8")
namespace {
namespace amx {
// Two groups of 16 tokens by two strips of 16 rows, the most that the eight tile registers hold.
double Dots(size_t rounds) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.row_bytes[tile] = 64;
  }
  _tile_loadconfig(&config);
  for (size_t i = 0; i < rounds; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return 2.0 * 4 * 16 * 16 * 64 * static_cast<double>(rounds);
}
}  // namespace amx
}  // namespace
#pragma GCC pop_options

#elif defined(SLUICE_BENCH_ARM64)
#define SLUICE_BENCH_REGISTER "w"

#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
namespace {
namespace sdot {
using Ints = int32x4_t;
using Floats = float32x4_t;
constexpr size_t kMixChains = 12, kDotChains = 16, kValuesPerDot = 4;
inline Ints Dot(Ints sum, Ints w, Ints x) {
  return vdotq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
}
inline Floats ToFloat(Ints sum) { return vcvtq_f32_s32(sum); }
inline Floats Mul(Floats a, Floats b) { return vmulq_f32(a, b); }
inline Floats Fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
#include "bench/mix-inl.h"
}  // namespace sdot

namespace smmla {
using Ints = int32x4_t;
using Floats = float32x4_t;
constexpr size_t kMixChains = 12, kDotChains = 16, kValuesPerDot = 8;
inline Ints Dot(Ints sum, Ints w, Ints x) {
  return vmmlaq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
}
using sdot::Fma;
using sdot::Mul;
using sdot::ToFloat;
#include "bench/mix-inl.h"
}  // namespace smmla
}  // namespace
#pragma GCC pop_options
#endif

namespace {

#define SLUICE_BENCH_LOOPS(set)                                                      \
  {set::Dots, set::Blocks<32, true>, set::Blocks<32, false>, set::Blocks<64, false>, \
   set::Blocks<128, false>}

constexpr DotInstruction kDotInstructions[] = {
#ifdef SLUICE_BENCH_X86
    {"TDPBSSD", "amx_int8", {amx::Dots, nullptr, nullptr, nullptr, nullptr}},
    {"VPDPBUSD_zmm", "avx512_vnni", SLUICE_BENCH_LOOPS(vnni512)},
    {"VPDPBUSD_ymm", "avx_vnni", SLUICE_BENCH_LOOPS(vnni256)},
    {"maddubs_zmm", "avx512", SLUICE_BENCH_LOOPS(maddubs512)},
    {"maddubs_ymm", "avx2", SLUICE_BENCH_LOOPS(maddubs256)},
#elif defined(SLUICE_BENCH_ARM64)
    {"SMMLA", "i8mm", SLUICE_BENCH_LOOPS(smmla)},
    {"SDOT", "dotprod", SLUICE_BENCH_LOOPS(sdot)},
#endif
    {"", "no CPU has this", {}},
};

constexpr FmaInstruction kFmaInstructions[] = {
#ifdef SLUICE_BENCH_X86
    {"FMA_zmm", "avx512", vnni512::Fmas},
    {"FMA_ymm", "avx2", maddubs256::Fmas},
#elif defined(SLUICE_BENCH_ARM64)
    {"FMLA", "dotprod", sdot::Fmas},
#endif
    {"", "no CPU has this", nullptr},
};

struct UsedBy {
  std::string_view target;
  std::string_view dots;    // where both scales are constant along K
  std::string_view blocks;  // elsewhere
};
constexpr UsedBy kUsedBy[] = {
    {"AVX3_AMX", "TDPBSSD", "VPDPBUSD_zmm"},
    {"AVX3_ZEN4", "VPDPBUSD_zmm", "VPDPBUSD_zmm"},
    {"AVX3_DL", "VPDPBUSD_zmm", "VPDPBUSD_zmm"},
    {"AVX3", "maddubs_zmm", "maddubs_zmm"},
    {"AVX2_VNNI", "VPDPBUSD_ymm", "VPDPBUSD_ymm"},
    {"AVX2", "maddubs_ymm", "maddubs_ymm"},
    {"NEON_I8MM", "SMMLA", "SMMLA"},
    {"NEON_DOTPROD", "SDOT", "SDOT"},
};

template <class T, size_t kSize>
std::vector<T> Present(const T (&all)[kSize]) {
  std::vector<T> present;
  const std::vector<CpuFeature> features = CpuFeatures();
  std::ranges::copy_if(all, std::back_inserter(present), [&](const T& instruction) {
    return std::ranges::any_of(features, [&](const CpuFeature& feature) {
      return feature.name == instruction.feature && feature.present;
    });
  });
  return present;
}

}  // namespace

std::string_view Name(Mix mix) {
  switch (mix) {
    case Mix::kDots:
      return "dots";
    case Mix::kBlock32Both:
      return "block32_both";
    case Mix::kBlock32:
      return "block32";
    case Mix::kBlock64:
      return "block64";
    case Mix::kBlock128:
      return "block128";
  }
  return "";
}

Mix MixOf(WeightFormat weights, ActivationFormat activations) {
  const bool blocks = activations == ActivationFormat::kBlock;
  if (weights.blocked() && blocks) return Mix::kBlock32Both;
  if (blocks || weights.block == 32) return Mix::kBlock32;
  if (weights.block == 64) return Mix::kBlock64;
  if (weights.block == 128) return Mix::kBlock128;
  return Mix::kDots;
}

std::span<const DotInstruction> DotInstructions() {
  static const std::vector<DotInstruction> present = Present(kDotInstructions);
  return present;
}

std::span<const FmaInstruction> FmaInstructions() {
  static const std::vector<FmaInstruction> present = Present(kFmaInstructions);
  return present;
}

const DotInstruction* InstructionOf(std::string_view target, Mix mix) {
  const auto* used = std::ranges::find(kUsedBy, target, &UsedBy::target);
  if (used == std::end(kUsedBy)) return nullptr;
  const std::string_view name = mix == Mix::kDots ? used->dots : used->blocks;
  const auto instructions = DotInstructions();
  const auto found = std::ranges::find(instructions, name, &DotInstruction::name);
  return found == instructions.end() ? nullptr : &*found;
}

}  // namespace sluice::bench
