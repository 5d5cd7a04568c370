// A device's states while something is measured on it, and whether they spoil the measurement.
#ifndef SLUICE_QUANT_CLI_DEVICE_LOG_H_
#define SLUICE_QUANT_CLI_DEVICE_LOG_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/cli/device.h"
#include "quant/cli/device_files.h"
#include "quant/report/json_text.h"

namespace sluice {

// What the throttle words say of the time between the first and the last of them.
struct ThrottleVerdict {
  std::optional<bool> valid;         // nullopt: the device tells nothing
  std::vector<std::string> reasons;  // what happened, if it is not valid
  // What had happened before already, so that the firmware's memory cannot show it a second time:
  // of these only what was so at the moment of a sample counts.
  std::vector<std::string> seen_before;
};
ThrottleVerdict JudgeThrottling(std::span<const std::optional<uint32_t>> words);

// Reads the state when it is made, whenever Sample is called, and when it is finished.
class DeviceLog {
 public:
  // `changed_from` is the governor before it was changed for this run; nullopt if nobody said so.
  DeviceLog(DeviceFiles files, std::vector<size_t> threads,
            std::optional<std::string> changed_from);

  const Device& device() const { return device_; }

  // To be called between measurements, directly after one: the clock is then still that of the
  // measurement. Does nothing within half a second of the last sample.
  void Sample();
  // The memory's limit, in bytes per second: what one thread and what `threads` threads read.
  void SetDram(double one, double all, size_t threads);

  struct Summary {
    Json json;  // DeviceJson and what was seen; keys as bench/README.md lists them
    std::optional<bool> valid;
    std::string text;  // for a person, a few lines
  };
  Summary Finish();

 private:
  struct Entry {
    double seconds = 0;
    double measured_hz = 0;
    DeviceState state;
  };
  void Add();
  Json LoadJson() const;
  Json GovernorJson() const;
  Json SamplesJson() const;
  // CPUs' worth of time that others had meanwhile.
  std::optional<double> OtherCpus() const;

  DeviceFiles files_;
  Device device_;
  std::vector<size_t> threads_;
  std::optional<std::string> changed_from_;
  std::chrono::steady_clock::time_point start_;
  double own_cpu_seconds_ = 0;  // at the start
  std::vector<Entry> entries_;
  Json dram_ = nullptr;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_DEVICE_LOG_H_
