// A model file of one block for ONNX Runtime, written without ONNX's own libraries.
#ifndef SLUICE_BENCH_RIVALS_ONNX_MODEL_H_
#define SLUICE_BENCH_RIVALS_ONNX_MODEL_H_

#include <string>

#include "bench/block.h"

namespace sluice::bench {

// The bytes of a ModelProto: input "x" [tokens, d_model], output "y"; gate, up and down are
// MatMulNBits (4 bits, blocks of 32, accuracy_level 4: activations int8 in blocks). The block's
// format is qb4w:32.
std::string OnnxModel(const PlainBlock& block);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_RIVALS_ONNX_MODEL_H_
