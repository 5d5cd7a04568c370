// What the operating system and the firmware tell of the device, as text.
#ifndef SLUICE_QUANT_CLI_DEVICE_FILES_H_
#define SLUICE_QUANT_CLI_DEVICE_FILES_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace sluice {

// Everything is read below `root`, "" for the device itself: a test has a tree of its own, with a
// script in the place of the firmware's command.
class DeviceFiles {
 public:
  explicit DeviceFiles(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }

  // The whole file, without white space and zero bytes at its end. nullopt: not there, or empty.
  std::optional<std::string> Text(std::string_view path) const;
  // A file that holds a decimal number.
  std::optional<double> Number(std::string_view path) const;
  // The value of the line "key: value" or "key\t: value".
  std::optional<std::string> Value(std::string_view path, std::string_view key) const;
  // What the Raspberry Pi's firmware answers. nullopt: another board, or no permission.
  // `question` is made of words, such as "measure_clock arm".
  std::optional<std::string> AskFirmware(std::string_view question) const;

 private:
  std::string root_;
};

// The number that `text` begins with; nullopt if it begins with none.
std::optional<double> LeadingNumber(std::string_view text);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_DEVICE_FILES_H_
