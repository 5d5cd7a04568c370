// Between the plain and the packed form of a matrix, and what a packed block consists of.
#ifndef SLUICE_SRC_FORMAT_PACK_H_
#define SLUICE_SRC_FORMAT_PACK_H_

#include <cstddef>
#include <span>
#include <string>

#include "sluice/error.h"
#include "sluice/format.h"
#include "src/base/aligned_buffer.h"
#include "src/format/layout.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

// A packed matrix somewhere in memory: owned by a PackedMatrix, or mapped from a file. All pointers
// are 64-byte aligned.
struct PackedMatrixView {
  PackedLayout layout;
  const std::byte* weights = nullptr;
  const std::byte* scales = nullptr;  // null for float formats
  const float* bias = nullptr;        // [padded_rows], padding 0; null: no bias

  const std::byte* strip_weights(size_t strip) const {
    return weights + strip * layout.strip_weight_bytes();
  }
  const std::byte* strip_scales(size_t strip) const {
    return scales + strip * layout.strip_scale_bytes();
  }
};

class PackedMatrix {
 public:
  PackedMatrixView view() const;

 private:
  friend Expected<PackedMatrix> Pack(const QuantizedMatrix&, std::span<const float>);
  PackedLayout layout_;
  AlignedBuffer weights_;
  AlignedBuffer scales_;
  AlignedBuffer bias_;  // empty: no bias
};

// `bias` is empty or has one value per row.
Expected<PackedMatrix> Pack(const QuantizedMatrix& matrix, std::span<const float> bias = {});

// The inverse of Pack: padding is dropped.
QuantizedMatrix Unpack(const PackedMatrixView& packed);

// Check what a kernel cannot: that integers are in range (no −128), floats finite, padding zero.
// One plane each, or all three. The error says where; the caller adds file and tensor. Every byte
// is read, at the speed of memory.
Status CheckWeights(const PackedMatrixView& packed);
Status CheckScales(const PackedMatrixView& packed);
Status CheckBias(const PackedMatrixView& packed);
Status CheckValues(const PackedMatrixView& packed);

// One block as the backends take it. Matrices are [out, in]: gate and up [d_ff, d_model], down
// [d_model, d_ff]. Without a gate, matrices[kGate] has null weights.
struct BlockView {
  size_t d_model = 0;
  size_t d_ff = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  ActivationFormat input = ActivationFormat::kFloat;  // of x, for the quantized ones of gate and up
  ActivationFormat hidden = ActivationFormat::kFloat;  // of act(g) ⊙ u, for down
  PerMatrix<PackedMatrixView> matrices;
};

// The activation formats that go with weight formats when the user names none: float weights take
// f32, blocked weights `block`, per-channel weights `row`; gate and up share one quantized x, which
// is `block` if either of them is blocked.
struct BlockActivations {
  ActivationFormat input = ActivationFormat::kFloat;
  ActivationFormat hidden = ActivationFormat::kFloat;
};
BlockActivations DefaultActivations(const PerMatrix<WeightFormat>& formats, bool gated);
// The same with `requested` in place of `row` and `block`; float weights still take f32.
BlockActivations ActivationsFor(const PerMatrix<WeightFormat>& formats, bool gated,
                                ActivationFormat requested);

// Shapes, and that activations suit weights: kFloat exactly where no quantized matrix reads them.
Status CheckBlock(const BlockView& block);

}  // namespace sluice

#endif  // SLUICE_SRC_FORMAT_PACK_H_
