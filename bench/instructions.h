// What the arithmetic of each instruction set reaches in registers: the peaks, and the ceilings of
// the instruction mixes that the weight formats need.
#ifndef SLUICE_BENCH_INSTRUCTIONS_H_
#define SLUICE_BENCH_INSTRUCTIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sluice/format.h"

namespace sluice::bench {

// What a kernel does for each block of K, beside the integer dot products, by the numerics
// contract: nothing if both scales are constant along K; convert and FMA if one of them is; and a
// multiply of the two scales more if neither is.
enum class Mix : uint8_t { kDots, kBlock32Both, kBlock32, kBlock64, kBlock128 };
inline constexpr std::array<Mix, 5> kMixes = {Mix::kDots, Mix::kBlock32Both, Mix::kBlock32,
                                              Mix::kBlock64, Mix::kBlock128};
std::string_view Name(Mix mix);
// The mix of a quantized format with these activations.
Mix MixOf(WeightFormat weights, ActivationFormat activations);

// One way to multiply and add 8-bit integers. A loop runs `rounds` rounds on data in registers and
// returns the operations it did, 2 for each multiply-add of two 8-bit values.
struct DotInstruction {
  std::string_view name;     // "VPDPBUSD_zmm"
  std::string_view feature;  // that a CPU needs, as CpuFeatures() names it
  std::array<double (*)(size_t rounds), kMixes.size()> loops;  // null: not made for this mix
};
// Best first; those that this CPU lacks are not among them.
std::span<const DotInstruction> DotInstructions();
// The one that the highway backend's `target` uses for `mix`; null if it has no loop here.
const DotInstruction* InstructionOf(std::string_view target, Mix mix);

// Fused multiply-add of floats, 2 operations each.
struct FmaInstruction {
  std::string_view name;
  std::string_view feature;
  double (*loop)(size_t rounds);
};
std::span<const FmaInstruction> FmaInstructions();

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_INSTRUCTIONS_H_
