#include "quant/cli/options.h"

#include <charconv>
#include <format>
#include <limits>

#include "sluice/cpu.h"
#include "src/backends/backend.h"
#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

constexpr size_t kMaxThreads = 1024;

Expected<size_t> ParseInRange(std::string_view text, size_t least, size_t most) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return Fail(ErrorCode::kInvalidArgument, "{} is not a number from {} to {}", Quote(text), least,
                most);
  }
  return value;
}

}  // namespace

Expected<size_t> ParsePositive(std::string_view text, size_t most) {
  return ParseInRange(text, 1, most);
}

Expected<size_t> ParseThreads(std::string_view text) { return ParsePositive(text, kMaxThreads); }

Expected<size_t> ParseNumber(std::string_view text) {
  return ParseInRange(text, 0, std::numeric_limits<uint32_t>::max());
}

Expected<ActivationFormat> ParseQuantizedActivation(std::string_view text) {
  for (const ActivationFormat format : {ActivationFormat::kRow, ActivationFormat::kBlock}) {
    if (Name(format) == text) return format;
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown activation format {}; known: row, block",
              Quote(text));
}

Expected<std::string> ParseBackend(std::string_view text) {
  return FindBackend(text).transform([](const Backend* b) { return std::string(b->name); });
}

Expected<std::string> ParseTarget(std::string_view text) {
  std::string known;
  for (const TargetInfo& target : Targets()) {
    if (target.name == text) return std::string(text);
    known += (known.empty() ? "" : ", ") + std::string(target.name);
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown target {}; known: {}", Quote(text), known);
}

void AddThreads(CLI::App& app, size_t& threads) {
  AddParsed(app, "--threads", threads, "N", ParseThreads,
            "Threads to use. The default is the number of performance cores that this process may "
            "use, within its container's CPU quota; `sluice cpu` prints it.")
      ->default_str(std::to_string(DefaultThreads()));
}

void AddQuiet(CLI::App& app, bool& quiet, const std::string& help) {
  app.add_flag("-q,--quiet", quiet, help);
}

void AddConfig(CLI::App& app, std::optional<std::string>& config) {
  app.add_option("--config", config,
                 "The model's config.json or params.json, if it does not lie beside the weights. "
                 "GGUF files need none.")
      ->type_name("FILE");
}

std::string FormatNames() {
  std::string names;
  for (const WeightFormat format : kWeightFormats) {
    names += (names.empty() ? "" : ", ") + Name(format);
  }
  return names;
}

}  // namespace sluice
