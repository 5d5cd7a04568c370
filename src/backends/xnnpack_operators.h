// XNNPACK's operators as values: created once, reshaped and run for each pass.
//
// An operator of XNNPACK keeps the shape and the pointers of its next run inside, so one operator
// must not run twice at the same time. In the version that Debian 13 ships (git 4ea82e5,
// 2024-11-08) reshape, setup and run allocate no memory.
#ifndef SLUICE_SRC_BACKENDS_XNNPACK_OPERATORS_H_
#define SLUICE_SRC_BACKENDS_XNNPACK_OPERATORS_H_

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice {

// The fully-connected operators that the backend uses. qd8 is XNNPACK's name for activations that
// are quantized on the fly to int8, asymmetric, one scale and zero point per token.
enum class XnnKernel : uint8_t {
  kF32,   // f32 weights, f32 activations
  kQc8w,  // qd8_f32_qc8w: int8 weights, one f32 scale per output channel
  kQc4w,  // qd8_f32_qc4w: int4 weights, one f32 scale per output channel
  kQb4w,  // qd8_f32_qb4w: int4 weights in blocks along K, one bf16 scale each
};
inline constexpr size_t kXnnKernels = 4;

constexpr bool TakesQd8(XnnKernel kernel) { return kernel != XnnKernel::kF32; }
std::string_view Name(XnnKernel kernel);

// Weights in the order in which XNNPACK's create functions read them. They copy what they read, so
// this is needed only until then. The members that `kernel` does not use are empty.
struct XnnWeights {
  XnnKernel kernel = XnnKernel::kF32;
  size_t rows = 0;               // N, out
  size_t cols = 0;               // K, in, padded: even for int4, a multiple of `block` for kQb4w
  size_t block = 0;              // kQb4w only
  std::vector<float> floats;     // [rows, cols]
  std::vector<int8_t> integers;  // [rows, cols]
  std::vector<uint8_t> nibbles;  // [rows, cols / 2], integer + 8, even columns low
  std::vector<float> scales;     // [rows]
  std::vector<uint16_t> block_scales;  // [rows, cols / block], bf16, positive and normal
};

// XNNPACK reads up to this many bytes beyond the end of a tensor (and ignores them).
inline constexpr size_t kXnnExtraBytes = XNN_EXTRA_BYTES;

// The quantization parameters that follow those of the last token. A kernel that computes R rows at
// once reads R of them even when fewer rows are left, and stores the surplus rows over the last
// one, so they must be copies of the last. xnnpack.h asks for 10 and the convert operator writes
// 10, but the kernels of this version compute up to 16 rows: with 1, 2 or 3 rows left the 14-row
// qb4w kernel (AVX-512 VNNI with GFNI) takes its last scale from beyond the ten, and the last
// token's result is zero or garbage. XnnConvert::Run therefore writes all of these.
inline constexpr size_t kXnnExtraParams = 16;

// A batch of vectors in both forms that operators read. Rows are `stride` apart and zero from cols
// to stride; see the two constants above for what must follow the last row.
struct XnnRows {
  size_t cols = 0;
  size_t stride = 0;
  float* floats = nullptr;
  int8_t* values = nullptr;                   // written by XnnConvert
  xnn_quantization_params* params = nullptr;  // [tokens + kXnnExtraParams], likewise
};

struct XnnDeleter {
  void operator()(xnn_operator* op) const { xnn_delete_operator(op); }
};
using XnnOperator = std::unique_ptr<xnn_operator, XnnDeleter>;

// Initializes XNNPACK once for the process. The error says why this machine cannot run it.
Status InitializeXnnpack();

// f32 to qd8, row by row.
class XnnConvert {
 public:
  static Expected<XnnConvert> Create();

  // Fills rows.values and rows.params from rows.floats, which must be finite; tokens >= 1. Returns
  // false only if XNNPACK refuses the call.
  [[nodiscard]] bool Run(const XnnRows& rows, size_t tokens, pthreadpool_t pool) const;

 private:
  XnnOperator op_;
};

// y = W·x for one matrix.
class XnnMatrix {
 public:
  // `stride`: that of the rows it will read.
  static Expected<XnnMatrix> Create(const XnnWeights& weights, size_t stride);

  // y is [tokens, rows] without gaps; tokens >= 1. Returns false only if XNNPACK refuses the call.
  // Integer sums are multiplied by the token's scale before the weight's, so a result may overflow
  // to Inf or NaN when values of x exceed about 1e36 / K.
  [[nodiscard]] bool Run(const XnnRows& x, size_t tokens, float* y, pthreadpool_t pool) const;

  XnnKernel kernel() const { return kernel_; }

 private:
  XnnKernel kernel_ = XnnKernel::kF32;
  XnnOperator op_;
};

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_XNNPACK_OPERATORS_H_
