// How checkpoints store numbers: the layout of every block type, and its values as f32.
#ifndef SLUICE_QUANT_CHECKPOINT_BLOCK_FORMATS_H_
#define SLUICE_QUANT_CHECKPOINT_BLOCK_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sluice/error.h"

namespace sluice {

// One element type of a file. A tensor's row is a sequence of blocks, each of which holds `values`
// consecutive numbers in `bytes` bytes; plain floats are blocks of one.
struct BlockFormat {
  uint32_t ggml_type = 0;  // the number that GGUF files use
  std::string_view name;   // ggml's, and safetensors' for the plain floats: "F32", "Q4_K"
  uint32_t values = 0;
  uint32_t bytes = 0;
  // Writes count · values floats, exactly as ggml's reference arithmetic in f32 gives them. Null: a
  // type whose size is known, so that a file holding it can be opened, but whose values are not
  // read.
  void (*decode)(const std::byte* blocks, size_t count, float* out) = nullptr;
};

// Every type that ggml defines (ggml/src/ggml-common.h), by ascending number.
std::span<const BlockFormat> BlockFormats();
// Null if there is none.
const BlockFormat* FindBlockFormat(std::string_view name);
const BlockFormat* FindGgmlType(uint32_t number);
// "F32, F16, Q4_0, …": the types whose values can be read.
std::string_view ReadableBlockFormats();

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_BLOCK_FORMATS_H_
