// The device that something was measured on, and the state it was in.
#ifndef SLUICE_QUANT_CLI_DEVICE_H_
#define SLUICE_QUANT_CLI_DEVICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quant/cli/device_files.h"
#include "quant/report/json_text.h"

namespace sluice {

// What stays the same while something is measured. What the device does not tell is nullopt.
struct Device {
  std::optional<std::string> board;  // "Raspberry Pi 5 Model B Rev 1.0"; a PC's vendor and product
  std::optional<std::string> revision;    // a Raspberry Pi's revision code, "d04170"
  std::string cpu;                        // as CpuName
  std::optional<std::string> firmware;    // "2024/09/23 14:02:56, version 26826259 (release)"
  std::optional<std::string> bootloader;  // likewise, of the EEPROM
  std::optional<std::string> kernel;      // "6.12.25+rpt-rpi-2712"
  std::optional<double> page_bytes;
  std::optional<double> memory_bytes;
  std::optional<std::string> huge_pages;  // transparent ones: "always", "madvise" or "never"
  std::optional<double> huge_page_bytes;
  std::optional<double> huge_pages_reserved;  // by number
  std::optional<std::string> cpus;            // that this process may run on: "0-3"
  std::optional<double> quota_cpus;           // CPUs' worth of time that the cgroup may use
  std::optional<size_t> default_threads;
};
Device ReadDevice(const DeviceFiles& files);
// Keys as bench/README.md lists them; null for what the device does not tell.
Json DeviceJson(const Device& device);

// The firmware's throttle word: bits 0…3 are so now, bits 16…19 have been so since the start.
// Source: Raspberry Pi's documentation of `vcgencmd get_throttled`.
std::vector<std::string_view> ThrottledNow(uint32_t word);
std::vector<std::string_view> ThrottledSinceStart(uint32_t word);
// {"word": "0x50005", "now": […], "since_start": […]}; null for nullopt.
Json ThrottledJson(std::optional<uint32_t> word);

// What changes.
struct DeviceState {
  std::optional<std::string> governor;  // of all CPUs: several with "," between them if they differ
  std::optional<uint32_t> throttled;
  std::optional<double> celsius;
  // The clock by the kernel and by the firmware. Neither is to be trusted: on a Raspberry Pi with
  // too little voltage the kernel reported 1400 MHz and it ran at 600 (ThomasKaiser/sbc-bench).
  std::optional<double> kernel_hz;
  std::optional<double> firmware_hz;
  std::optional<double> load;               // average of the last minute
  std::optional<double> busy_cpu_seconds;   // of all CPUs and processes since the start
  std::optional<double> huge_bytes_in_use;  // of this process
};
DeviceState ReadDeviceState(const DeviceFiles& files);

// The clock that this thread's CPU runs at, in Hz: additions that wait for one another take a cycle
// each on every CPU that sluice knows of. The best of a few samples of a millisecond. Under an
// emulator it is the emulator's rate.
double MeasuredHz();

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_DEVICE_H_
