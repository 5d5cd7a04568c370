#include "quant/checkpoint/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <format>
#include <string>
#include <utility>

#include "quant/checkpoint/json_file.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Expected<ModelConfig> Parse(std::string_view text) { return ParseConfig("config.json", text); }

Activation ActivationOf(const std::string& text) {
  const Expected<ModelConfig> config = Parse(text);
  if (!config) {
    ADD_FAILURE() << config.error().message;
    return Activation::kIdentity;
  }
  return config->activation;
}

std::string ErrorOf(std::string_view text) {
  const Expected<ModelConfig> config = Parse(text);
  if (config) {
    ADD_FAILURE() << text << " was accepted";
    return "";
  }
  EXPECT_THAT(config.error().message, HasSubstr("config.json: "));
  EXPECT_EQ(config.error().message.find('\n'), std::string::npos);
  return config.error().message;
}

TEST(Config, ReadsEveryActivation) {
  const std::pair<const char*, Activation> names[] = {{"silu", Activation::kSilu},
                                                      {"swish", Activation::kSilu},
                                                      {"gelu", Activation::kGelu},
                                                      {"gelu_new", Activation::kGeluTanh},
                                                      {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                      {"relu", Activation::kRelu},
                                                      {"relu2", Activation::kRelu2},
                                                      {"sigmoid", Activation::kSigmoid},
                                                      {"linear", Activation::kIdentity}};
  for (const auto& [name, activation] : names) {
    EXPECT_EQ(ActivationOf(std::format(R"({{"model_type":"llama","hidden_act":"{}"}})", name)),
              activation)
        << name;
  }
}

TEST(Config, H11RefusesUnknownActivationsNamingKeyAndValue) {
  // sluice's own names and other libraries' are no names of hidden_act.
  for (const char* name :
       {"quick_gelu", "gelu_fast", "gelu_tanh", "identity", "SiLU", "mish", ""}) {
    EXPECT_THAT(ErrorOf(std::format(R"({{"model_type":"llama","hidden_act":"{}"}})", name)),
                AllOf(HasSubstr("hidden_act"), HasSubstr(std::format("\"{}\"", name))));
  }
  EXPECT_THAT(ErrorOf(R"({"model_type":"gpt2","activation_function":"tanhish"})"),
              AllOf(HasSubstr("activation_function"), HasSubstr("\"tanhish\"")));
  EXPECT_THAT(ErrorOf(R"({"model_type":"bert","hidden_act":3})"),
              AllOf(HasSubstr("hidden_act"), HasSubstr("3")));
}

// H11: Gemma's is the tanh form, whatever its first configurations said.
TEST(Config, H11GemmaMeansTanh) {
  for (const char* type : {"gemma", "gemma2", "gemma3_text"}) {
    const auto gemma = [&](std::string_view keys) {
      return std::format(R"({{"model_type":"{}"{}}})", type, keys);
    };
    EXPECT_EQ(ActivationOf(gemma("")), Activation::kGeluTanh);
    EXPECT_EQ(ActivationOf(gemma(R"(,"hidden_act":"gelu")")), Activation::kGeluTanh);
    EXPECT_EQ(ActivationOf(gemma(R"(,"hidden_act":"gelu_pytorch_tanh")")), Activation::kGeluTanh);
    EXPECT_EQ(ActivationOf(gemma(R"(,"hidden_act":"gelu","hidden_activation":null)")),
              Activation::kGeluTanh);
    EXPECT_EQ(
        ActivationOf(gemma(R"(,"hidden_act":"gelu","hidden_activation":"gelu_pytorch_tanh")")),
        Activation::kGeluTanh);
    // The later key goes first, and says what it means.
    EXPECT_EQ(ActivationOf(gemma(R"(,"hidden_act":"gelu","hidden_activation":"relu")")),
              Activation::kRelu);
    EXPECT_THAT(ErrorOf(gemma(R"(,"hidden_activation":"other")")),
                AllOf(HasSubstr("hidden_activation"), HasSubstr("\"other\"")));
    EXPECT_THAT(ErrorOf(gemma(R"(,"hidden_act":"other")")),
                AllOf(HasSubstr("hidden_act"), HasSubstr("\"other\"")));
    EXPECT_THAT(ErrorOf(gemma(R"(,"hidden_act":"silu")")),
                AllOf(HasSubstr("hidden_act"), HasSubstr("\"silu\"")));
  }
}

TEST(Config, AbsentActivationsAreTheClassDefaults) {
  const std::pair<const char*, Activation> families[] = {
      {"llama", Activation::kSilu},   {"mistral", Activation::kSilu}, {"qwen2", Activation::kSilu},
      {"qwen3", Activation::kSilu},   {"phi3", Activation::kSilu},    {"bert", Activation::kGelu},
      {"gpt2", Activation::kGeluTanh}};
  for (const auto& [type, activation] : families) {
    EXPECT_EQ(ActivationOf(std::format(R"({{"model_type":"{}"}})", type)), activation) << type;
  }
}

TEST(Config, IdentifiesByClassWithoutModelType) {
  const std::pair<const char*, const char*> classes[] = {
      {"LlamaForCausalLM", "llama"},   {"MistralModel", "mistral"},
      {"Qwen2ForCausalLM", "qwen2"},   {"GemmaForCausalLM", "gemma"},
      {"Gemma2ForCausalLM", "gemma2"}, {"Gemma3ForConditionalGeneration", "gemma3"},
      {"BertForMaskedLM", "bert"},     {"GPT2LMHeadModel", "gpt2"}};
  for (const auto& [name, family] : classes) {
    const auto config = Parse(std::format(R"({{"architectures":["{}"]}})", name));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->architecture->name, family);
  }
  EXPECT_THAT(ErrorOf(R"({"architectures":["Qwen2MoeForCausalLM"]})"),
              HasSubstr("mixture of experts is not supported"));
  EXPECT_THAT(ErrorOf(R"({"architectures":["BertgenerationThing"]})"),
              HasSubstr("\"BertgenerationThing\""));
  EXPECT_THAT(ErrorOf(R"({"architectures":"LlamaForCausalLM"})"), HasSubstr("architectures"));
  EXPECT_THAT(ErrorOf(R"({"architectures":[]})"), HasSubstr("architectures"));
}

TEST(Config, UnknownFamiliesAreRefusedByName) {
  for (const char* type : {"falcon", "t5", "Llama", "gemma3n", "phi", "qwen", "llava"}) {
    EXPECT_THAT(ErrorOf(std::format(R"({{"model_type":"{}"}})", type)),
                AllOf(HasSubstr("model_type"), HasSubstr(std::format("\"{}\"", type)),
                      HasSubstr("not supported")));
  }
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("neither model_type nor architectures"));
}

TEST(Config, MixturesOfExpertsAreRefusedByName) {
  for (const char* text : {R"({"model_type":"mixtral"})", R"({"model_type":"qwen3_moe"})",
                           R"({"model_type":"deepseek_v3"})", R"({"model_type":"gpt_oss"})",
                           R"({"model_type":"llama","num_local_experts":8})",
                           R"({"model_type":"gemma3","text_config":{"num_experts":4}})",
                           R"({"dim":8,"hidden_dim":8,"moe":{"num_experts":8}})"}) {
    EXPECT_THAT(ErrorOf(text), HasSubstr("mixture of experts is not supported")) << text;
  }
  EXPECT_TRUE(Parse(R"({"model_type":"llama","num_local_experts":0,"num_experts":null})"));
}

TEST(Config, Sizes) {
  const auto config = Parse(
      R"({"model_type":"llama","hidden_size":4,"intermediate_size":6,"num_hidden_layers":2})");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->d_model->value, 4u);
  EXPECT_EQ(config->DFf(0), 6u);
  EXPECT_EQ(config->DFf(1), 6u);
  EXPECT_EQ(config->layers->value, 2u);
  const auto gpt2 = Parse(R"({"model_type":"gpt2","n_embd":768,"n_inner":null})");
  ASSERT_TRUE(gpt2);
  EXPECT_EQ(gpt2->DFf(11), 3072u);
  const auto silent = Parse(R"({"model_type":"llama"})");
  ASSERT_TRUE(silent);
  EXPECT_FALSE(silent->d_model);
  EXPECT_FALSE(silent->layers);
  EXPECT_FALSE(silent->DFf(0));
}

// Published models: Llama 2 7B and 70B, Llama 3 8B.
TEST(Config, MetaWidthsOfPublishedModels) {
  const std::pair<const char*, uint64_t> models[] = {
      {R"({"dim":4096,"multiple_of":256})", 11008},
      {R"({"dim":8192,"multiple_of":4096,"ffn_dim_multiplier":1.3})", 28672},
      {R"({"dim":4096,"multiple_of":1024,"ffn_dim_multiplier":1.3})", 14336}};
  for (const auto& [params, width] : models) {
    const auto config = Parse(params);
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->DFf(0), width) << params;
  }
}

TEST(Config, SizesMustBePositiveIntegers) {
  for (const char* value : {"0", "-4", "4.0", "\"4\"", "[4]", "true", "1e3", "18446744073709551615",
                            "99999999999999999999"}) {
    EXPECT_THAT(ErrorOf(std::format(R"({{"model_type":"llama","hidden_size":{}}})", value)),
                HasSubstr("hidden_size"))
        << value;
  }
  EXPECT_THAT(ErrorOf(R"({"dim":4,"multiple_of":6,"ffn_dim_multiplier":-1})"),
              HasSubstr("ffn_dim_multiplier"));
  EXPECT_THAT(ErrorOf(R"({"dim":4,"multiple_of":6,"ffn_dim_multiplier":1e300})"),
              HasSubstr("ffn_dim_multiplier"));
  EXPECT_THAT(ErrorOf(R"({"model_type":"llama","mlp_bias":"yes"})"), HasSubstr("mlp_bias"));
}

TEST(Config, IsJson) {
  EXPECT_THAT(ErrorOf(R"({"model_type":"llama",})"), HasSubstr("not JSON: error at byte 23 of 23"));
  EXPECT_THAT(ErrorOf(R"({"model_type":)"),
              HasSubstr("not JSON: it ends unfinished after 14 bytes"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("array"));
  EXPECT_THAT(ErrorOf("nonsense"), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(R"({"model_type":"llama","x":1e999})"), HasSubstr("number"));
  EXPECT_THAT(ErrorOf("{\"model_type\":\"ll\xFF\"}"), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(R"({"model_type":["llama"]})"), HasSubstr("model_type is an array"));
}

// Nesting deeper than the stack is carried by no recursion of ours.
TEST(Config, DeepNestingIsHarmless) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_TRUE(Parse(R"({"model_type":"llama","x":)" + deep + "}"));
  EXPECT_THAT(ErrorOf(R"({"model_type":"llama","hidden_act":)" + deep + "}"),
              HasSubstr("hidden_act is an array"));
  EXPECT_THAT(ErrorOf(std::string(200'000, '{')), HasSubstr("not JSON"));
}

}  // namespace
}  // namespace sluice
