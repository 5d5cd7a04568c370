#include "src/base/cpu_name.h"

#include <algorithm>
#include <format>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {
namespace {

// The cores of boards, phones and servers that sluice is likely to meet; others appear by number.
// From Arm's technical reference manuals, register MIDR_EL1, implementer 0x41.
constexpr std::pair<std::string_view, std::string_view> kArmParts[] = {
    {"0xc07", "Cortex-A7"},   {"0xd03", "Cortex-A53"},  {"0xd04", "Cortex-A35"},
    {"0xd05", "Cortex-A55"},  {"0xd07", "Cortex-A57"},  {"0xd08", "Cortex-A72"},
    {"0xd09", "Cortex-A73"},  {"0xd0a", "Cortex-A75"},  {"0xd0b", "Cortex-A76"},
    {"0xd0c", "Neoverse-N1"}, {"0xd0d", "Cortex-A77"},  {"0xd40", "Neoverse-V1"},
    {"0xd41", "Cortex-A78"},  {"0xd44", "Cortex-X1"},   {"0xd46", "Cortex-A510"},
    {"0xd47", "Cortex-A710"}, {"0xd48", "Cortex-X2"},   {"0xd49", "Neoverse-N2"},
    {"0xd4b", "Cortex-A78C"}, {"0xd4d", "Cortex-A715"}, {"0xd4e", "Cortex-X3"},
    {"0xd4f", "Neoverse-V2"}, {"0xd80", "Cortex-A520"}, {"0xd81", "Cortex-A720"},
    {"0xd82", "Cortex-X4"},
};

std::string CoreName(std::string_view implementer, std::string_view part) {
  if (implementer == "0x41") {
    for (const auto& [number, name] : kArmParts) {
      if (number == part) return std::string(name);
    }
  }
  return std::format("core {}/{}", implementer, part);
}

// Printable characters only, no white space at either end.
std::string Clean(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    if (c >= ' ' && c < '\x7f') clean += c;
  }
  const size_t begin = clean.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return clean.substr(begin, clean.find_last_not_of(' ') - begin + 1);
}

// The value of a line "key : value".
std::optional<std::string> Value(const std::string& line, std::string_view key) {
  if (!line.starts_with(key)) return std::nullopt;
  const size_t colon = line.find_first_not_of(" \t", key.size());
  if (colon == std::string::npos || line[colon] != ':') return std::nullopt;
  return Clean(std::string_view(line).substr(colon + 1));
}

// "4x Cortex-A55, 4x Cortex-A76", in the order of first appearance.
std::string ArmCores(std::istream& cpuinfo) {
  std::vector<std::pair<std::string, int>> cores;
  std::string implementer;
  for (std::string line; std::getline(cpuinfo, line);) {
    if (auto value = Value(line, "CPU implementer")) implementer = *value;
    const auto part = Value(line, "CPU part");
    if (!part) continue;
    const std::string name = CoreName(implementer, *part);
    const auto seen = std::ranges::find(cores, name, &std::pair<std::string, int>::first);
    if (seen == cores.end()) {
      cores.emplace_back(name, 1);
    } else {
      ++seen->second;
    }
  }
  std::string text;
  for (const auto& [name, count] : cores) {
    text += std::format("{}{}x {}", text.empty() ? "" : ", ", count, name);
  }
  return text;
}

}  // namespace

std::string CpuName(const std::string& root) {
  std::ifstream cpuinfo(root + "/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const auto name = Value(line, "model name");
    if (name && !name->empty()) return *name;
  }
  cpuinfo.clear();
  cpuinfo.seekg(0);
  const std::string cores = ArmCores(cpuinfo);
  std::ifstream board_file(root + "/proc/device-tree/model");
  const std::string board = Clean(std::string(std::istreambuf_iterator<char>(board_file), {}));
  if (board.empty() && cores.empty()) return "unknown CPU";
  if (board.empty() || cores.empty()) return board + cores;
  return std::format("{} ({})", board, cores);
}

}  // namespace sluice
