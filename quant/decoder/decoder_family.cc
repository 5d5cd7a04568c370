#include "quant/decoder/decoder_family.h"

#include <algorithm>
#include <iterator>

namespace sluice {
namespace {

// Read from configuration_*.py and modeling_*.py of each family in huggingface/transformers, and
// for GGUF from the graphs that llama.cpp builds. tests/data/decoder compares each with
// transformers.
constexpr DecoderFamily kFamilies[] = {
    {.name = "llama"},
    {.name = "mistral", .kv_heads = 8, .windows = WindowRule::kAllLayers},
    {.name = "qwen2", .kv_heads = 32, .windows = WindowRule::kFromLayer, .always_qkv_bias = true},
    {.name = "qwen3",
     .kv_heads = 32,
     .head_dim = 128,
     .windows = WindowRule::kFromLayer,
     .qk_norm = true},
    {.name = "gemma", .heads = 16, .kv_heads = 16, .head_dim = 256, .tied = true, .gemma = true},
    {.name = "gemma2",
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .tied = true,
     .windows = WindowRule::kAllButNth,
     .period = 2,
     .attention_cap = 50,
     .logit_cap = 30,
     .gemma = true,
     .post_norms = true,
     .query_scalar = true,
     .gguf_wide_layers = 46},  // the 27B model
    {.name = "gemma3",
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .theta = 1'000'000,
     .tied = true,
     .windows = WindowRule::kAllButNth,
     .period = 6,
     .gemma = true,
     .post_norms = true,
     .qk_norm = true,
     .query_scalar = true,
     .local_rope = true,
     .gguf_wide_layers = 62},  // the 27B model
};

constexpr DecoderNames kHuggingFace = {.layers = "layers.",
                                       .embedding = "embed_tokens",
                                       .final_norm = "norm",
                                       .q = "self_attn.q_proj",
                                       .k = "self_attn.k_proj",
                                       .v = "self_attn.v_proj",
                                       .output = "self_attn.o_proj",
                                       .q_norm = "self_attn.q_norm",
                                       .k_norm = "self_attn.k_norm",
                                       .attention_norm = "input_layernorm",
                                       .post_attention_norm = "",
                                       // It comes after the attention, and before the block.
                                       .block_norm = "post_attention_layernorm",
                                       .post_block_norm = ""};

// Gemma 2 and 3 call by the same name what really is a norm of the attention's result.
constexpr DecoderNames kHuggingFacePostNorms = [] {
  DecoderNames names = kHuggingFace;
  names.post_attention_norm = "post_attention_layernorm";
  names.block_norm = "pre_feedforward_layernorm";
  names.post_block_norm = "post_feedforward_layernorm";
  return names;
}();

constexpr DecoderNames kGguf = {.layers = "blk.",
                                .embedding = "token_embd",
                                .final_norm = "output_norm",
                                .q = "attn_q",
                                .k = "attn_k",
                                .v = "attn_v",
                                .output = "attn_output",
                                .q_norm = "attn_q_norm",
                                .k_norm = "attn_k_norm",
                                .attention_norm = "attn_norm",
                                .post_attention_norm = "post_attention_norm",
                                .block_norm = "ffn_norm",
                                .post_block_norm = "post_ffw_norm"};

}  // namespace

const DecoderFamily* FindDecoderFamily(std::string_view name) {
  const auto* found = std::ranges::find(kFamilies, name, &DecoderFamily::name);
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string KnownDecoderFamilies() {
  std::string list;
  for (const DecoderFamily& family : kFamilies) {
    if (!list.empty()) list += ", ";
    list += family.name;
  }
  return list;
}

const DecoderNames& NamesOf(Dialect dialect, bool post_norms) {
  if (dialect == Dialect::kGguf) return kGguf;
  return post_norms ? kHuggingFacePostNorms : kHuggingFace;
}

}  // namespace sluice
