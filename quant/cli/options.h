// Options that several subcommands have.
#ifndef SLUICE_QUANT_CLI_OPTIONS_H_
#define SLUICE_QUANT_CLI_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

// Values that are parsed as they are read, so that a wrong one is a usage error which lists the
// right ones. `type` is what help calls the value.
template <class T>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, T& to, const std::string& type,
                       Expected<T> (*parse)(std::string_view), const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&to, parse, name](const std::string& text) {
            Expected<T> value = parse(text);
            if (!value) throw CLI::ValidationError(name, value.error().message);
            to = *std::move(value);
          },
          help)
      ->type_name(type);
}

// Likewise for a list: the option may be given several times, and each time with several values
// between `delimiter`s, if there is one.
template <class T>
CLI::Option* AddParsedList(CLI::App& app, const std::string& name, std::vector<T>& to,
                           const std::string& type, Expected<T> (*parse)(std::string_view),
                           char delimiter, const std::string& help) {
  return app
      .add_option_function<std::vector<std::string>>(
          name,
          [&to, parse, name](const std::vector<std::string>& texts) {
            to.clear();
            for (const std::string& text : texts) {
              Expected<T> value = parse(text);
              if (!value) throw CLI::ValidationError(name, value.error().message);
              to.push_back(*std::move(value));
            }
          },
          help)
      ->type_name(type)
      ->delimiter(delimiter)
      ->allow_extra_args(false);
}
inline constexpr char kNoDelimiter = '\0';

// An option that, given, makes an optional of its value.
template <class T>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, std::optional<T>& to,
                       const std::string& type, Expected<T> (*parse)(std::string_view),
                       const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&to, parse, name](const std::string& text) {
            Expected<T> value = parse(text);
            if (!value) throw CLI::ValidationError(name, value.error().message);
            to = *std::move(value);
          },
          help)
      ->type_name(type);
}

// A number from 1 to `most`.
Expected<size_t> ParsePositive(std::string_view text, size_t most);
Expected<size_t> ParseThreads(std::string_view text);
Expected<size_t> ParseNumber(std::string_view text);  // from 0
// "row" or "block".
Expected<ActivationFormat> ParseQuantizedActivation(std::string_view text);
// A name that a backend or a target has; errors list them.
Expected<std::string> ParseBackend(std::string_view text);
Expected<std::string> ParseTarget(std::string_view text);

// --threads N. 0 until given: DefaultThreads().
void AddThreads(CLI::App& app, size_t& threads);
// --quiet.
void AddQuiet(CLI::App& app, bool& quiet, const std::string& help);
// --config FILE, for commands that read a checkpoint.
void AddConfig(CLI::App& app, std::optional<std::string>& config);

// The names of all formats, "f32, bf16, …".
std::string FormatNames();

// What a MODEL is, for help.
inline constexpr const char kModelHelp[] =
    "The model: a .gguf file, a folder with config.json and its weights, or a .safetensors or "
    "index "
    "file with config.json (or Meta's params.json) beside it.";

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_OPTIONS_H_
