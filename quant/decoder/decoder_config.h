// What a model's configuration says about everything but its feed-forward blocks.
#ifndef SLUICE_QUANT_DECODER_DECODER_CONFIG_H_
#define SLUICE_QUANT_DECODER_DECODER_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "sluice/error.h"

namespace sluice {

// Rotary positions: https://arxiv.org/abs/2104.09864.
enum class RopeScaling : uint8_t {
  kNone,
  kLinear,  // every frequency divided by `factor`: https://arxiv.org/abs/2306.15595
  kLlama3,  // the low frequencies only, with a ramp between: Llama 3.1's model card and code
};

struct RopeSettings {
  double theta = 10'000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  // Llama 3's: wavelengths beyond original_context / low_factor are divided, those below
  // original_context / high_factor are left.
  double low_factor = 1;
  double high_factor = 4;
  double original_context = 8192;
};

// Angles per position of the head_dim / 2 pairs of a head, rounded to f32 as models use them.
std::vector<float> RopeFrequencies(const RopeSettings& rope, size_t head_dim);

enum class Presence : uint8_t {
  kNever,  // a tensor of that name is an error: the computation would lack it
  kAlways,
  kOptional,
};

struct DecoderLayerConfig {
  size_t window = 0;  // a token sees itself and the window − 1 tokens before it; 0: all
  bool local_rope = false;
};

struct DecoderConfig {
  size_t d_model = 0;
  size_t heads = 0;
  size_t kv_heads = 0;  // divides heads; each serves heads / kv_heads consecutive heads
  size_t head_dim = 0;  // even
  double norm_eps = 1e-6;
  float norm_offset = 0;       // added to every norm's weights: Gemma's are stored less 1
  double embedding_scale = 1;  // Gemma: √d_model
  double attention_scale = 1;  // of q·k
  double attention_cap = 0;    // scores become cap · tanh(score / cap); 0: none
  double logit_cap = 0;        // likewise
  bool post_norms = false;     // Gemma 2 and 3: norms after attention and block, too
  bool qk_norm = false;        // Qwen 3, Gemma 3: a norm of each head of q and k
  Presence qkv_bias = Presence::kNever;
  Presence output_bias = Presence::kNever;  // of the attention's output
  // The matrix that makes logits; without it they come from the embedding.
  Presence output_matrix = Presence::kOptional;
  bool interleaved_heads = false;  // GGUF's Llama: row 2i + j of a head is row i + j·head_dim/2
  RopeSettings rope;
  RopeSettings local_rope;  // Gemma 3's sliding layers
  std::vector<DecoderLayerConfig> layers;
};

// Errors name the key and its value: families that are not decoders or have not been checked
// against their authors' code, settings that are known to change the computation and are not
// implemented (other kinds of rotary scaling, partial rotation, attention both ways), sizes that do
// not fit each other.
Expected<DecoderConfig> ReadDecoderConfig(const Checkpoint& checkpoint);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_DECODER_CONFIG_H_
