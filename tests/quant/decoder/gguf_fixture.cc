#include "tests/quant/decoder/gguf_fixture.h"

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "tests/quant/decoder/run_decoder.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace sluice::test {
namespace {

using nlohmann::json;

// Of the suffixes of a layer's tensors; where Gemma's differ, they come second.
const std::map<std::string, std::string, std::less<>> kNames = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}};
const std::map<std::string, std::string, std::less<>> kGemmaNames = {
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}};

std::string GgufName(const std::string& name, bool post_norms) {
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  const std::string prefix = "model.layers.";
  const size_t dot = name.find('.', prefix.size());
  const std::string layer = "blk." + name.substr(prefix.size(), dot - prefix.size()) + ".";
  const std::string rest = name.substr(dot + 1);
  if (post_norms) {
    if (const auto found = kGemmaNames.find(rest); found != kGemmaNames.end()) {
      return layer + found->second;
    }
  }
  for (const auto& [theirs, ours] : kNames) {
    if (rest.starts_with(theirs)) return layer + ours + rest.substr(theirs.size());
  }
  throw std::runtime_error("no name for " + name);
}

// The converter's `permute`: of each head, the two halves' rows one by one in turn.
std::vector<float> Permuted(const std::vector<float>& values, size_t rows, size_t head_dim) {
  const size_t cols = values.size() / rows, half = head_dim / 2;
  std::vector<float> out(values.size());
  for (size_t head = 0; head < rows; head += head_dim) {
    for (size_t i = 0; i < half; ++i) {
      for (size_t part = 0; part < 2; ++part) {
        std::memcpy(&out[(head + 2 * i + part) * cols], &values[(head + part * half + i) * cols],
                    cols * sizeof(float));
      }
    }
  }
  return out;
}

// rope_freqs.weight of Llama 3: what each frequency is divided by.
std::vector<float> RopeDivisors(const json& rope, size_t head_dim) {
  std::vector<float> divisors;
  const double low = rope["low_freq_factor"], high = rope["high_freq_factor"];
  const double context = rope["original_max_position_embeddings"], factor = rope["factor"];
  for (size_t i = 0; i < head_dim; i += 2) {
    const double wavelength = 2 * std::numbers::pi *
                              std::pow(rope["rope_theta"].get<double>(),
                                       static_cast<double>(i) / static_cast<double>(head_dim));
    const double smooth = (context / wavelength - low) / (high - low);
    const double divisor = wavelength < context / high  ? 1
                           : wavelength > context / low ? factor
                                                        : 1 / ((1 - smooth) / factor + smooth);
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

void AddFloat(GgufWriter& gguf, const std::string& key, double value) {
  gguf.Raw(key, kGgufF32, BytesOf(static_cast<float>(value)));
}

void AddMetadata(GgufWriter& gguf, const std::string& type, const json& config, size_t head_dim) {
  gguf.String("general.architecture", type);
  const std::map<std::string, std::string> sizes = {
      {"hidden_size", "embedding_length"},
      {"intermediate_size", "feed_forward_length"},
      {"num_hidden_layers", "block_count"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"}};
  for (const auto& [theirs, ours] : sizes) gguf.U32(type + "." + ours, config[theirs]);
  gguf.U32(type + ".attention.key_length", static_cast<uint32_t>(head_dim));
  gguf.U32(type + ".attention.value_length", static_cast<uint32_t>(head_dim));
  AddFloat(gguf, type + ".attention.layer_norm_rms_epsilon", config["rms_norm_eps"]);
  const bool gemma3 = type == "gemma3";
  const json& parameters = config["rope_parameters"];
  const json& rope = gemma3 ? parameters["full_attention"] : parameters;
  AddFloat(gguf, type + ".rope.freq_base", rope["rope_theta"]);
  if (rope["rope_type"] == "linear") {
    gguf.String(type + ".rope.scaling.type", "linear");
    AddFloat(gguf, type + ".rope.scaling.factor", rope["factor"]);
  }
  if (gemma3) {
    AddFloat(gguf, type + ".rope.freq_base_swa", parameters["sliding_attention"]["rope_theta"]);
    gguf.U32(type + ".attention.sliding_window_pattern", 2);
  }
  if (gemma3 || type == "gemma2") {
    gguf.U32(type + ".attention.sliding_window", config["sliding_window"]);
  }
  if (type == "gemma2") {
    AddFloat(gguf, type + ".attn_logit_softcapping", config["attn_logit_softcapping"]);
    AddFloat(gguf, type + ".final_logit_softcapping", config["final_logit_softcapping"]);
  }
}

}  // namespace

void WriteGgufFixture(std::string_view name, const std::string& path) {
  const SafetensorsFile fixture = OpenFixture(name);
  const json config = json::parse(fixture.metadata().at("config"));
  std::string type = config["model_type"];
  if (type == "gemma3_text") type = "gemma3";
  const bool gemma = type.starts_with("gemma");
  const bool post_norms = type == "gemma2" || type == "gemma3";
  const size_t heads = config["num_attention_heads"];
  const size_t head_dim = fixture.Find("model.layers.0.self_attn.q_proj.weight")->shape[0] / heads;
  GgufWriter gguf;
  AddMetadata(gguf, type, config, head_dim);
  if (name == "llama3_scaled") {
    gguf.F32("rope_freqs.weight", {head_dim / 2},
             RopeDivisors(config["rope_parameters"], head_dim));
  }
  for (const SafetensorsEntry& entry : fixture.entries()) {
    if (entry.name == "tokens" || entry.name == "logits") continue;
    std::vector<float> values = ValuesOf<float>(entry);
    const bool rotated = entry.name.contains("q_proj") || entry.name.contains("k_proj");
    if (type == "llama" && rotated) values = Permuted(values, entry.shape[0], head_dim);
    if (gemma && entry.name.ends_with("norm.weight")) {
      for (float& v : values) v += 1;
    }
    // llama.cpp scales Gemma's scores by the width of a head; the fixture has another scalar.
    // Queries that are normed take it in the norm.
    if (post_norms && entry.name.contains(type == "gemma3" ? "q_norm" : "q_proj")) {
      const double scalar = config["query_pre_attn_scalar"];
      const double factor = std::sqrt(static_cast<double>(head_dim) / scalar);
      for (float& v : values) v *= static_cast<float>(factor);
    }
    gguf.F32(GgufName(entry.name, post_norms), entry.shape, values);
  }
  WriteBytes(path, gguf.Build());
}

}  // namespace sluice::test
