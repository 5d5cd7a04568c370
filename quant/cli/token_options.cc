#include "quant/cli/token_options.h"

#include "quant/cli/options.h"

namespace sluice {
namespace {

constexpr size_t kMaxContext = size_t{1} << 20;

Expected<size_t> ParseContext(std::string_view text) { return ParsePositive(text, kMaxContext); }

}  // namespace

void AddTokens(CLI::App& app, TokenOptions& options) {
  app.add_option("--tokens", options.tokens,
                 "Text as the model's token ids: a .npy file of int32 or int64, [n] or [texts, "
                 "length], or a safetensors file with such a tensor named tokens. "
                 "quant/tools/text_to_tokens.py makes one.")
      ->type_name("FILE");
  app.add_option(
         "--text", options.text,
         "Plain text, for models whose tokens are bytes. Either this or --tokens is needed.")
      ->type_name("FILE");
  AddParsed(app, "--context", options.context, "N", ParseContext,
            "Tokens in a window. The text is cut into windows that share nothing; nothing is put "
            "before them.")
      ->default_str("512");
}

void RequireTokens(const TokenOptions& options) {
  if (options.tokens.has_value() == options.text.has_value()) {
    throw CLI::ValidationError("either --tokens or --text is needed");
  }
}

Expected<Tokens> ReadTokens(const TokenOptions& options, size_t vocabulary) {
  return options.tokens ? ReadTokens(*options.tokens, options.context, vocabulary)
                        : ReadText(*options.text, options.context, vocabulary);
}

}  // namespace sluice
