// Choosing integers and scales for a matrix.
#ifndef SLUICE_QUANT_QUANTIZER_QUANTIZER_H_
#define SLUICE_QUANT_QUANTIZER_QUANTIZER_H_

#include <cstdint>

#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

// A block whose largest magnitude is below this becomes zeros with scale 0. It is the smallest
// power of two at which amax / 127 is still a normal number in f32 and in bf16, which has f32's
// exponents: so every scale other than 0 carries its full precision, and its reciprocal is finite.
inline constexpr float kMinWeightAmax = 0x1p-119f;

// Round to nearest. Per block (or row), scale = amax / 7 or amax / 127 rounded to what the format
// stores, then integers = weight / scale, half to even, against that rounded scale. Where every
// value of the block is integer · s, as Dequantize computes it, for one storable s = amax / k
// (k = 1…8 in int4, 1…127 in int8), that s is taken, and the block comes back bit for bit. A last
// block that is not full has a scale of its real values only. No weight dequantizes to infinity.
//
// `weights` is [out, in]. Errors, with row and column: NaN or infinity; a weight that bf16 rounds
// to infinity. Also what PackedLayout::Create refuses: an empty matrix, K beyond kMaxK. The result
// does not depend on the number of threads.
Expected<QuantizedMatrix> QuantizeRtn(MatrixView<const float> weights, WeightFormat format,
                                      const ThreadPool* pool);

// Blocks (or rows) with scale 0: all their weights are 0. None in float formats.
uint64_t CountZeroBlocks(const QuantizedMatrix& matrix);

// Whether every weight is ±0: a file that was never wholly written looks like this.
bool IsAllZero(MatrixView<const float> weights);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_QUANTIZER_H_
