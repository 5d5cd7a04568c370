#include "quant/cli/device.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <format>
#include <limits>
#include <sstream>
#include <utility>

#include "src/base/cpu_name.h"
#include "src/base/default_threads.h"

namespace sluice {
namespace {

constexpr std::string_view kCpus = "/sys/devices/system/cpu";

// Of the firmware's answer the date, which comes first, and the version.
std::optional<std::string> FirmwareVersion(const std::optional<std::string>& answer) {
  if (!answer) return std::nullopt;
  std::istringstream in(*answer);
  std::string date;
  std::getline(in, date);
  date.resize(date.find_last_not_of(" \r") + 1);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("version ")) continue;
    line.resize(line.find_last_not_of(" \r") + 1);
    return date + ", " + line;
  }
  return std::nullopt;
}

// "4 kB", and "MemTotal: 8 kB" in /proc, mean KiB.
std::optional<double> Kibibytes(const DeviceFiles& files, std::string_view path,
                                std::string_view key) {
  const auto value = files.Value(path, key);
  const auto number = value ? LeadingNumber(*value) : std::nullopt;
  return number ? std::optional(*number * 1024) : std::nullopt;
}

// "always [madvise] never": the one in brackets.
std::optional<std::string> Chosen(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const size_t begin = text->find('[');
  const size_t end = text->find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
  return text->substr(begin + 1, end - begin - 1);
}

std::optional<std::string> Board(const DeviceFiles& files) {
  if (auto model = files.Text("/proc/device-tree/model")) return model;
  const auto vendor = files.Text("/sys/class/dmi/id/sys_vendor");
  const auto product = files.Text("/sys/class/dmi/id/product_name");
  if (!vendor || !product) return product;
  return *vendor + " " + *product;
}

// "0-2,5" as numbers; empty if it is anything else.
std::vector<int> CpuList(const std::string& text) {
  std::vector<int> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc()) return {};
    int last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc() || last - first > 4096) return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    at = parsed.ptr;
    if (at != end && *at++ != ',') return {};
  }
  return cpus;
}

std::optional<std::string> Governor(const DeviceFiles& files) {
  std::string all;
  for (int cpu = 0;; ++cpu) {
    const std::string folder = std::format("{}/cpu{}", kCpus, cpu);
    const auto governor = files.Text(folder + "/cpufreq/scaling_governor");
    if (!governor) break;
    if (("," + all + ",").find("," + *governor + ",") != std::string::npos) continue;
    all += (all.empty() ? "" : ",") + *governor;
  }
  return all.empty() ? std::nullopt : std::optional(all);
}

// "throttled=0x50005".
std::optional<uint32_t> Throttled(const DeviceFiles& files) {
  const auto answer = files.AskFirmware("get_throttled");
  constexpr std::string_view kPrefix = "throttled=0x";
  if (!answer || !answer->starts_with(kPrefix)) return std::nullopt;
  uint32_t word = 0;
  const char* const end = answer->data() + answer->size();
  const auto parsed = std::from_chars(answer->data() + kPrefix.size(), end, word, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return word;
}

// Of the thermal zone that is the CPU's, in thousandths; else what the firmware says,
// "temp=48.3'C".
std::optional<double> Celsius(const DeviceFiles& files) {
  for (int zone = 0;; ++zone) {
    const std::string folder = std::format("/sys/class/thermal/thermal_zone{}", zone);
    const auto type = files.Text(folder + "/type");
    if (!type) break;
    if (!type->starts_with("cpu") && !type->starts_with("soc") && *type != "x86_pkg_temp") continue;
    if (const auto value = files.Number(folder + "/temp")) return *value / 1000;
  }
  const auto answer = files.AskFirmware("measure_temp");
  if (!answer || !answer->starts_with("temp=")) return std::nullopt;
  return LeadingNumber(std::string_view(*answer).substr(5));
}

// "frequency(48)=1500398464".
std::optional<double> FirmwareHz(const DeviceFiles& files) {
  const auto answer = files.AskFirmware("measure_clock arm");
  if (!answer || !answer->starts_with("frequency(")) return std::nullopt;
  const size_t equals = answer->find('=');
  if (equals == std::string::npos) return std::nullopt;
  return LeadingNumber(std::string_view(*answer).substr(equals + 1));
}

// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, in
// hundredths of a second. (guest time is part of user.)
std::optional<double> BusyCpuSeconds(const DeviceFiles& files) {
  const auto text = files.Text("/proc/stat");
  if (!text) return std::nullopt;
  std::istringstream in(*text);
  std::string cpu;
  std::array<double, 8> ticks;
  if (!(in >> cpu) || cpu != "cpu") return std::nullopt;
  double busy = 0;
  for (size_t i = 0; i < ticks.size(); ++i) {
    if (!(in >> ticks[i])) return std::nullopt;
    if (i != 3 && i != 4) busy += ticks[i];
  }
  constexpr double kTicksPerSecond = 100;  // USER_HZ, which every architecture of Linux reports in
  return busy / kTicksPerSecond;
}

std::vector<std::string_view> Flags(uint32_t bits) {
  constexpr std::array<std::string_view, 4> kNames = {"under-voltage", "frequency capped",
                                                      "throttled", "soft temperature limit"};
  std::vector<std::string_view> names;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (((bits >> i) & 1) != 0) names.push_back(kNames[i]);
  }
  return names;
}

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Bytes and counts are whole numbers.
Json WholeOrNull(const std::optional<double>& value) {
  return value ? Json(static_cast<uint64_t>(*value)) : Json(nullptr);
}

}  // namespace

Device ReadDevice(const DeviceFiles& files) {
  Device device;
  device.board = Board(files);
  device.revision = files.Value("/proc/cpuinfo", "Revision");
  device.cpu = CpuName(files.root());
  device.firmware = FirmwareVersion(files.AskFirmware("version"));
  device.bootloader = FirmwareVersion(files.AskFirmware("bootloader_version"));
  device.kernel = files.Text("/proc/sys/kernel/osrelease");
  device.page_bytes = Kibibytes(files, "/proc/self/smaps", "KernelPageSize");
  device.memory_bytes = Kibibytes(files, "/proc/meminfo", "MemTotal");
  device.huge_pages = Chosen(files.Text("/sys/kernel/mm/transparent_hugepage/enabled"));
  device.huge_page_bytes = Kibibytes(files, "/proc/meminfo", "Hugepagesize");
  if (const auto reserved = files.Value("/proc/meminfo", "HugePages_Total")) {
    device.huge_pages_reserved = LeadingNumber(*reserved);
  }
  device.cpus = files.Value("/proc/self/status", "Cpus_allowed_list");
  device.quota_cpus = CpuQuota(files.root());
  const std::vector<int> cpus = CpuList(device.cpus.value_or(""));
  if (!cpus.empty()) device.default_threads = ThreadsFor(cpus, files.root());
  return device;
}

Json DeviceJson(const Device& device) {
  return {{"board", OrNull(device.board)},
          {"revision", OrNull(device.revision)},
          {"cpu", device.cpu},
          {"firmware", OrNull(device.firmware)},
          {"bootloader", OrNull(device.bootloader)},
          {"kernel", OrNull(device.kernel)},
          {"page_bytes", WholeOrNull(device.page_bytes)},
          {"memory_bytes", WholeOrNull(device.memory_bytes)},
          {"huge_pages",
           {{"transparent", OrNull(device.huge_pages)},
            {"bytes", WholeOrNull(device.huge_page_bytes)},
            {"reserved", WholeOrNull(device.huge_pages_reserved)}}},
          {"threads",
           {{"cpus", OrNull(device.cpus)},
            {"quota_cpus", OrNull(device.quota_cpus)},
            {"default", OrNull(device.default_threads)}}}};
}

std::vector<std::string_view> ThrottledNow(uint32_t word) { return Flags(word & 0xf); }
std::vector<std::string_view> ThrottledSinceStart(uint32_t word) {
  return Flags((word >> 16) & 0xf);
}

Json ThrottledJson(std::optional<uint32_t> word) {
  if (!word) return nullptr;
  return {{"word", std::format("{:#x}", *word)},
          {"now", ThrottledNow(*word)},
          {"since_start", ThrottledSinceStart(*word)}};
}

DeviceState ReadDeviceState(const DeviceFiles& files) {
  DeviceState state;
  state.governor = Governor(files);
  state.throttled = Throttled(files);
  state.celsius = Celsius(files);
  if (const auto khz = files.Number(std::string(kCpus) + "/cpu0/cpufreq/scaling_cur_freq")) {
    state.kernel_hz = *khz * 1e3;
  }
  state.firmware_hz = FirmwareHz(files);
  state.load = files.Number("/proc/loadavg");
  state.busy_cpu_seconds = BusyCpuSeconds(files);
  state.huge_bytes_in_use = Kibibytes(files, "/proc/self/smaps_rollup", "AnonHugePages");
  return state;
}

double MeasuredHz() {
  using Clock = std::chrono::steady_clock;
  constexpr int kSamples = 3;
  constexpr int kUnrolled = 128;  // so that the loop's own instructions hide behind the additions
  size_t sum = 1;
  size_t one = 1;
  // Registers that the compiler knows nothing of. An immediate operand would not do: recent x86
  // cores add small constants while they rename registers, several in a cycle.
  const auto chain = [&](size_t rounds) {
    for (size_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 128
      for (int j = 0; j < kUnrolled; ++j) {
        sum += one;
        asm volatile("" : "+r"(sum), "+r"(one));
      }
    }
  };
  size_t rounds = 64;
  double best = 0;
  for (int sample = 0; sample < kSamples;) {
    const Clock::time_point start = Clock::now();
    chain(rounds);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds < 1e-3) {
      rounds *= 2;
      continue;
    }
    best = std::max(best, static_cast<double>(rounds) * kUnrolled / seconds);
    ++sample;
  }
  return best;
}

}  // namespace sluice
