// The kernels: what every instruction set implements, as plain functions on plain memory.
//
// A block is computed from five operations. Their results are fixed by the numerics contract, bit
// for bit, for every target with FMA; src/kernels/reference.h says the same in scalar code.
//
//   quantize_blocks, quantize_row   activations to int8, half to even
//   dot                             up to four strips of 16 rows times a few tokens
//   combine                         act(gate) ⊙ up
//   finish                          bias, NaN, residual, store
#ifndef SLUICE_SRC_KERNELS_KERNELS_H_
#define SLUICE_SRC_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sluice/cpu.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/layout.h"
#include "src/format/pack.h"

namespace sluice {

// An amax below this quantizes to zeros with scale 0: 127 / amax would overflow, and no model means
// anything by such values.
inline constexpr float kMinAmax = 0x1p-100f;

// Every NaN that a block stores.
inline constexpr uint32_t kCanonicalNan = 0x7FC00000u;

// Token rows as the dot kernels read them. A view into scratch memory; rows are 64-byte aligned.
// For values: q = round_half_even(x · (127 / amax)), scale = amax / 127, over 32 values (kBlock) or
// the whole row (kRow).
struct ActivationRows {
  ActivationFormat format = ActivationFormat::kFloat;
  size_t cols = 0;

  // Unquantized rows, for float weights; may be unaligned.
  const float* floats = nullptr;
  size_t float_stride = 0;

  // Quantized rows. Zero from cols up to the next multiple of 128.
  int8_t* values = nullptr;
  size_t value_stride = 0;
  float* scales = nullptr;  // [blocks of 32] (kBlock) or [1] (kRow)
  size_t scale_stride = 0;
  // −8 · (sum of each block of 32 values): the value at which a sum over nibbles 0…15 starts so
  // that it ends as the sum over −8…7. 16 times it serves int8 weights offset by 128.
  int32_t* offsets = nullptr;
  int32_t* total_offset = nullptr;  // [tokens]: the sum of a row's offsets; kRow only
  size_t offset_stride = 0;
};

// Columns that quantized rows are zero-padded to: the largest weight block.
inline constexpr size_t kMaxBlock = 128;

// Quantized rows once more, as the dot kernels of several tokens read them: in the order in which a
// register tile of tokens wants them, so that it walks one stream instead of one for each token,
// and three for each with scales and offsets. Tiles have `height` tokens or less: as few tiles as
// there can be, all of one height or one less. A tile of h tokens is, for each 32 columns,
// TileBlockBytes(h) bytes:
//
//   values   int8 [32/c][h][c]   c columns of each token side by side: 4, or 8 for SMMLA
//   scales   f32 [h]             as in the rows; kBlock only
//   offsets  int32 [h]           as in the rows
struct ActivationTiles {
  size_t height = 0;
  size_t columns = kTileK;  // c
  size_t tokens = 0;
  size_t blocks = 0;  // of 32 columns, padding included
  std::byte* data = nullptr;
};
constexpr size_t TileBlockBytes(size_t tokens) {
  return tokens * (kActivationBlock + sizeof(float) + sizeof(int32_t));
}

// The strips that one dot call multiplies: of one matrix, or of gate and up side by side, as many
// streams of memory. All have the same layout. One token takes up to kMaxStrips, more tokens up to
// kTileStrips.
inline constexpr size_t kMaxStrips = 8;
inline constexpr size_t kTileStrips = 4;
// The most tokens of one dot call: 128 times four strips are 32 KiB of results. Fewer would stay in
// the first-level cache, but unpacking the weights for 64 tokens took 5 to 8 % of the time.
inline constexpr size_t kMaxDotTokens = 128;
inline constexpr size_t kDotStride = kTileStrips * kStripRows;  // floats
struct DotArgs {
  PackedLayout layout;
  size_t num_strips = 0;  // 1 … kMaxStrips, or kTileStrips
  const std::byte* weights[kMaxStrips] = {};
  const std::byte* scales[kMaxStrips] = {};
  // What the next call will read, to be asked for meanwhile; null: unknown. Hints.
  const std::byte* next_weights[kMaxStrips] = {};
  const std::byte* next_scales[kMaxStrips] = {};
  const ActivationRows* x = nullptr;
  // The same activations in tiles of the height that the kernels want, and the call is for whole
  // tiles; or null: tokens are multiplied one by one.
  const ActivationTiles* tiles = nullptr;
  size_t first_token = 0;
  size_t tokens = 0;  // 1 … kMaxDotTokens
  // [tokens, kDotStride], num_strips·16 of each (of one token up to kMaxStrips·16); aligned to 64
  // bytes.
  float* out = nullptr;
};

// act(gate + gate_bias) ⊙ (up + up_bias), or act(up + up_bias) when gate is null.
struct CombineArgs {
  Activation activation = Activation::kSilu;
  const float* gate = nullptr;
  const float* up = nullptr;
  const float* gate_bias = nullptr;  // null: none; the same for all tokens
  const float* up_bias = nullptr;
  float* out = nullptr;  // may be `gate` or `up`
  size_t n = 0;          // any; reads and writes no further
  size_t tokens = 1;
  size_t stride = 0;  // floats from a token's gate, or up, to the next token's
  size_t out_stride = 0;
};

// Rows of n values each to int8, ceil(n / 32) blocks with a scale each; a last partial block is
// padded with zeros. A block with a value that is not finite becomes zeros with scale 0.
struct QuantizeArgs {
  const float* x = nullptr;
  size_t n = 0;
  int8_t* values = nullptr;
  float* scales = nullptr;
  int32_t* offsets = nullptr;
  size_t rows = 1;
  size_t x_stride = 0;  // from a row's to the next row's
  size_t value_stride = 0;
  size_t scale_stride = 0;
  size_t offset_stride = 0;
};

// y = row + bias, NaN made canonical; or y = y + (row + bias).
struct FinishArgs {
  const float* row = nullptr;
  const float* bias = nullptr;  // null: none; the same for all tokens
  float* y = nullptr;
  size_t n = 0;
  bool add_to_residual = false;
  // [tokens], nonzero: the token's x or hidden vector was not finite, its row is NaN. Null: none.
  const uint32_t* poisoned = nullptr;
  size_t tokens = 1;
  size_t row_stride = 0;
  size_t y_stride = 0;
};

struct Kernels {
  std::string_view target;
  // Computes with fused multiply-add, so that the contract's equality holds.
  bool exact = false;

  // Returns whether all values are finite.
  bool (*quantize_blocks)(const QuantizeArgs& args);
  // The same for one row, with one scale for all n values.
  bool (*quantize_row)(const float* x, size_t n, int8_t* values, float* scale, int32_t* offsets,
                       int32_t* total_offset);
  // Whether all n values are finite: for vectors that stay unquantized.
  bool (*all_finite)(const float* x, size_t n);
  // The height of the tiles that dot wants for many tokens (kBatchTokens and more); 0: it reads
  // rows.
  size_t (*tile_height)(WeightFormat format, ActivationFormat x);
  size_t tile_columns = kTileK;     // ActivationTiles::columns
  size_t row_strips = kTileStrips;  // that dot wants for one token, kTileStrips or more
  void (*dot)(const DotArgs& args);
  // Returns whether all of out is finite.
  bool (*combine)(const CombineArgs& args);
  void (*finish)(const FinishArgs& args);
};

// Every kernel set compiled into this library, best first, and whether this CPU may run it.
struct RegisteredKernels {
  const Kernels* kernels = nullptr;
  bool available = false;
  std::string reason;
  // The dot kernel is made for batches; single tokens are better served by the next target.
  bool batch_only = false;
};
std::span<const RegisteredKernels> AllKernels();

// The kernels that a block with a matrix in `format` uses.
struct KernelPair {
  const Kernels* decode = nullptr;  // fewer than kBatchTokens tokens
  const Kernels* batch = nullptr;
};
inline constexpr size_t kBatchTokens = 8;
// `target`: a name, or empty for the best. Errors: an unknown name (all are listed), an unavailable
// one (with the reason).
Expected<KernelPair> FindKernels(std::string_view target, WeightFormat format);

}  // namespace sluice

#endif  // SLUICE_SRC_KERNELS_KERNELS_H_
