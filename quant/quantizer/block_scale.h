// The scale of one block of weights.
#ifndef SLUICE_QUANT_QUANTIZER_BLOCK_SCALE_H_
#define SLUICE_QUANT_QUANTIZER_BLOCK_SCALE_H_

#include <span>

#include "sluice/format.h"

namespace sluice {

// The largest magnitude of `values`, finite or not: NaN counts as larger than infinity.
float MaxMagnitude(std::span<const float> values);

// The scale that QuantizeRtn describes, for a block with finite values whose largest magnitude is
// `amax`: 0 below kMinWeightAmax; the exact one if there is one; else amax / 7 or amax / 127,
// rounded to what `format` stores, or the next lower such value if the nearest would let the
// largest integer dequantize to infinity.
float ChooseScale(std::span<const float> values, float amax, WeightFormat format);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_BLOCK_SCALE_H_
