// What a model family computes beside its feed-forward blocks, and how its tensors are called. A
// family is one row of a table; to add one, add a row, and a fixture to tests/quant/decoder.
#ifndef SLUICE_QUANT_DECODER_DECODER_FAMILY_H_
#define SLUICE_QUANT_DECODER_DECODER_FAMILY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quant/checkpoint/architecture.h"

namespace sluice {

// Which layers see a window of tokens only.
enum class WindowRule : uint8_t {
  kNone,
  kAllLayers,  // Mistral
  kFromLayer,  // Qwen: from max_window_layers on, if use_sliding_window
  kAllButNth,  // Gemma 2 and 3: all but every 2nd or 6th
};

struct DecoderFamily {
  std::string_view name;  // Architecture::name
  // Defaults of the family's configuration class in huggingface/transformers, where it has them.
  size_t heads = 32;
  size_t kv_heads = 0;  // 0: as many as heads
  size_t head_dim = 0;  // 0: d_model / heads
  double theta = 10'000;
  bool tied = false;
  WindowRule windows = WindowRule::kNone;
  size_t window = 4096;
  size_t period = 0;  // kAllButNth
  double attention_cap = 0;
  double logit_cap = 0;
  bool gemma = false;  // norms stored less 1, embedding times √d_model
  bool post_norms = false;
  bool qk_norm = false;
  bool query_scalar = false;     // scores times query_pre_attn_scalar^−½, not head_dim^−½
  bool local_rope = false;       // layers with a window rotate by a base of their own
  bool always_qkv_bias = false;  // else attention_bias says it, of q, k, v and output
  size_t gguf_wide_layers = 0;   // a GGUF with as many layers scales by d_model / heads instead
};

// Null if the decoder does not know the family.
const DecoderFamily* FindDecoderFamily(std::string_view name);
// "llama, mistral, …".
std::string KnownDecoderFamilies();

// Names of tensors. Those of a layer follow its prefix and number; all end in ".weight".
struct DecoderNames {
  std::string_view layers;
  std::string_view embedding;
  std::string_view final_norm;
  std::string_view q, k, v, output;
  std::string_view q_norm, k_norm;
  std::string_view attention_norm;       // before the attention
  std::string_view post_attention_norm;  // after it
  std::string_view block_norm;           // before the feed-forward block
  std::string_view post_block_norm;
};
const DecoderNames& NamesOf(Dialect dialect, bool post_norms);

}  // namespace sluice

#endif  // SLUICE_QUANT_DECODER_DECODER_FAMILY_H_
