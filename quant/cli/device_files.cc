#include "quant/cli/device_files.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

namespace sluice {
namespace {

constexpr std::string_view kSpace(" \t\r\n\0", 5);  // the device tree's texts end with a zero

std::optional<std::string> Trimmed(std::string text) {
  const size_t last = text.find_last_not_of(kSpace);
  if (last == std::string::npos) return std::nullopt;
  text.resize(last + 1);
  text.erase(0, text.find_first_not_of(kSpace));
  return text;
}

std::string ShellQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::optional<double> LeadingNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

std::optional<std::string> DeviceFiles::Text(std::string_view path) const {
  std::ifstream in(root_ + std::string(path), std::ios::binary);
  if (!in) return std::nullopt;
  return Trimmed(std::string(std::istreambuf_iterator<char>(in), {}));
}

std::optional<double> DeviceFiles::Number(std::string_view path) const {
  const std::optional<std::string> text = Text(path);
  return text ? LeadingNumber(*text) : std::nullopt;
}

std::optional<std::string> DeviceFiles::Value(std::string_view path, std::string_view key) const {
  std::ifstream in(root_ + std::string(path));
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find_first_not_of(" \t", key.size());
    if (colon == std::string::npos || line[colon] != ':') continue;
    return Trimmed(line.substr(colon + 1));
  }
  return std::nullopt;
}

std::optional<std::string> DeviceFiles::AskFirmware(std::string_view question) const {
  const std::string program = root_ + "/usr/bin/vcgencmd";
  if (access(program.c_str(), X_OK) != 0) return std::nullopt;
  const std::string command = ShellQuoted(program) + " " + std::string(question) + " 2>/dev/null";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string answer;
  std::array<char, 512> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    answer.append(buffer.data(), count);
  }
  // The command succeeds even where the firmware does not know the question.
  if (pclose(pipe) != 0 || answer.starts_with("error=")) return std::nullopt;
  return Trimmed(std::move(answer));
}

}  // namespace sluice
