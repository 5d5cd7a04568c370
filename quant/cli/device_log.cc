#include "quant/cli/device_log.h"

#include <sys/resource.h>

#include <algorithm>
#include <format>
#include <utility>

#include "quant/report/numbers.h"

namespace sluice {
namespace {

constexpr double kSampleInterval = 0.5;  // seconds

double OwnCpuSeconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage;
    if (getrusage(who, &usage) != 0) continue;
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return seconds;
}

Json NumberOrNull(const std::optional<double>& value) {
  return value ? sluice::NumberOrNull(*value) : Json(nullptr);
}

Json TextOrNull(const std::optional<std::string>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string Joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

}  // namespace

ThrottleVerdict JudgeThrottling(std::span<const std::optional<uint32_t>> words) {
  ThrottleVerdict verdict;
  uint32_t now = 0;
  std::optional<uint32_t> first;
  uint32_t last = 0;
  for (const std::optional<uint32_t>& word : words) {
    if (!word) continue;
    if (!first) first = word;
    last = *word;
    now |= *word;
  }
  if (!first) return verdict;
  for (const std::string_view flag : ThrottledNow(now)) {
    verdict.reasons.push_back(std::format("{} during the run", flag));
  }
  // What began and ended between two samples is only in the memory.
  const uint32_t remembered = (last & ~*first) & ~(now << 16);
  for (const std::string_view flag : ThrottledSinceStart(remembered)) {
    verdict.reasons.push_back(std::format("{} between two samples", flag));
  }
  for (const std::string_view flag : ThrottledSinceStart(*first)) {
    verdict.seen_before.emplace_back(flag);
  }
  verdict.valid = verdict.reasons.empty();
  return verdict;
}

DeviceLog::DeviceLog(DeviceFiles files, std::vector<size_t> threads,
                     std::optional<std::string> changed_from)
    : files_(std::move(files)),
      device_(ReadDevice(files_)),
      threads_(std::move(threads)),
      changed_from_(std::move(changed_from)),
      start_(std::chrono::steady_clock::now()),
      own_cpu_seconds_(OwnCpuSeconds()) {
  Add();
}

void DeviceLog::Add() {
  Entry entry;
  // First of all, since reading the rest gives the clock time to change.
  entry.measured_hz = MeasuredHz();
  const auto now = std::chrono::steady_clock::now();
  entry.seconds = std::chrono::duration<double>(now - start_).count();
  entry.state = ReadDeviceState(files_);
  entries_.push_back(std::move(entry));
}

void DeviceLog::Sample() {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (seconds - entries_.back().seconds >= kSampleInterval) Add();
}

void DeviceLog::SetDram(double one, double all, size_t threads) {
  dram_ = {{"one_core_gb_per_s", sluice::NumberOrNull(one / 1e9)},
           {"all_cores_gb_per_s", sluice::NumberOrNull(all / 1e9)},
           {"threads", threads}};
}

std::optional<double> DeviceLog::OtherCpus() const {
  const auto& before = entries_.front().state.busy_cpu_seconds;
  const auto& after = entries_.back().state.busy_cpu_seconds;
  const double elapsed = entries_.back().seconds - entries_.front().seconds;
  if (!before || !after || elapsed <= 0) return std::nullopt;
  const double others = *after - *before - (OwnCpuSeconds() - own_cpu_seconds_);
  return std::max(0.0, others / elapsed);  // the kernel counts in hundredths of a second
}

Json DeviceLog::LoadJson() const {
  return {{"before", NumberOrNull(entries_.front().state.load)},
          {"after", NumberOrNull(entries_.back().state.load)},
          {"other_cpus", NumberOrNull(OtherCpus())}};
}

Json DeviceLog::GovernorJson() const {
  const auto& before = entries_.front().state.governor;
  const auto& after = entries_.back().state.governor;
  Json changed = nullptr;
  if (before) changed = before != after || changed_from_.has_value();
  return {{"before", TextOrNull(before)},
          {"after", TextOrNull(after)},
          {"changed", std::move(changed)},
          {"changed_from", TextOrNull(changed_from_)}};
}

Json DeviceLog::SamplesJson() const {
  Json samples = Json::array();
  for (const Entry& entry : entries_) {
    samples.push_back(
        {{"seconds", sluice::NumberOrNull(entry.seconds)},
         {"celsius", NumberOrNull(entry.state.celsius)},
         {"measured_hz", sluice::NumberOrNull(entry.measured_hz)},
         {"kernel_hz", NumberOrNull(entry.state.kernel_hz)},
         {"firmware_hz", NumberOrNull(entry.state.firmware_hz)},
         {"throttled", entry.state.throttled ? Json(std::format("{:#x}", *entry.state.throttled))
                                             : Json(nullptr)}});
  }
  return samples;
}

DeviceLog::Summary DeviceLog::Finish() {
  Add();
  std::vector<std::optional<uint32_t>> words;
  words.reserve(entries_.size());
  for (const Entry& entry : entries_) words.push_back(entry.state.throttled);
  const ThrottleVerdict verdict = JudgeThrottling(words);

  Summary summary;
  summary.valid = verdict.valid;
  summary.json = DeviceJson(device_);
  summary.json["threads"]["measured"] = threads_;
  const auto& huge_bytes = entries_.back().state.huge_bytes_in_use;
  summary.json["huge_pages"]["in_use_bytes"] =
      huge_bytes ? Json(static_cast<uint64_t>(*huge_bytes)) : Json(nullptr);
  summary.json["governor"] = GovernorJson();
  summary.json["load"] = LoadJson();
  summary.json["dram"] = dram_;
  summary.json["throttled"] = verdict.valid ? Json{{"before", ThrottledJson(words.front())},
                                                   {"after", ThrottledJson(words.back())},
                                                   {"seen_before", verdict.seen_before}}
                                            : Json(nullptr);
  summary.json["valid"] = verdict.valid ? Json(*verdict.valid) : Json(nullptr);
  summary.json["invalid_because"] = verdict.reasons;
  summary.json["samples"] = SamplesJson();

  summary.text = std::format("device: {}\n", device_.board.value_or(device_.cpu));
  if (!verdict.valid) {
    summary.text += "device: does not tell whether it was throttled\n";
  } else if (!*verdict.valid) {
    summary.text += std::format("device: THESE RESULTS ARE INVALID: {}\n", Joined(verdict.reasons));
  } else {
    summary.text += "device: was not throttled\n";
  }
  return summary;
}

}  // namespace sluice
