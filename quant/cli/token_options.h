// Options of the commands that run a whole model on text.
#ifndef SLUICE_QUANT_CLI_TOKEN_OPTIONS_H_
#define SLUICE_QUANT_CLI_TOKEN_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <optional>
#include <string>

#include "quant/decoder/tokens.h"
#include "sluice/error.h"

namespace sluice {

struct TokenOptions {
  std::optional<std::string> tokens;
  std::optional<std::string> text;
  size_t context = 512;

  // The one of the two that was given.
  const std::string& path() const { return tokens ? *tokens : *text; }
};

// --tokens FILE, --text FILE and --context N.
void AddTokens(CLI::App& app, TokenOptions& options);
// For the command's callback: a usage error unless exactly one file was given.
void RequireTokens(const TokenOptions& options);

Expected<Tokens> ReadTokens(const TokenOptions& options, size_t vocabulary);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_TOKEN_OPTIONS_H_
