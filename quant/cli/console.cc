#include "quant/cli/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <format>

#include "quant/report/printable.h"
#include "src/base/status.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// In a log, a line a layer is welcome when layers take seconds, not when they take milliseconds.
constexpr auto kBetweenLines = std::chrono::seconds(1);
constexpr size_t kBarWidth = 30;

void WriteLine(std::string_view prefix, std::string_view message) {
  const std::string line = std::format("{}{}\n", prefix, Printable(message));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// ", 1 min 20 s left"; nothing while nobody waits, or nothing is known.
std::string TimeLeft(Clock::duration passed, size_t done, size_t all) {
  constexpr auto kWorthSaying = std::chrono::seconds(3);
  if (passed < kWorthSaying || done == 0 || done >= all) return "";
  const double each = std::chrono::duration<double>(passed).count() / static_cast<double>(done);
  const auto left = std::lround(each * static_cast<double>(all - done));
  constexpr long kMinute = 60;
  return left < kMinute ? std::format(", {} s left", left)
                        : std::format(", {} min {} s left", left / kMinute, left % kMinute);
}

int output_error = 0;  // errno of the first write to stdout that failed

}  // namespace

void PrintError(std::string_view message) { WriteLine("sluice: ", message); }
void PrintWarning(std::string_view message) { WriteLine("sluice: warning: ", message); }
void PrintNote(std::string_view message) { WriteLine("sluice: ", message); }

void Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() && output_error == 0) {
    output_error = errno;
  }
}

Status FlushOutput() {
  if (std::fflush(stdout) != 0 && output_error == 0) output_error = errno;
  if (output_error == 0) return {};
  return Fail(ErrorCode::kIo, "standard output: cannot write: {}", std::strerror(output_error));
}

Progress::Progress(std::string doing, bool quiet)
    : doing_(std::move(doing)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (!quiet_ && terminal_) std::fputs("\r\x1b[K", stderr);
}

void Progress::Show(size_t done, size_t all, const std::string& what) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  const std::string left = TimeLeft(now - start_, done, all);
  if (terminal_) {
    const size_t filled = all == 0 ? kBarWidth : kBarWidth * done / all;
    const std::string bar = std::string(filled, '#') + std::string(kBarWidth - filled, '-');
    std::fputs(
        std::format("\r\x1b[K{} [{}] {}/{} {}{}", doing_, bar, done, all, what, left).c_str(),
        stderr);
    std::fflush(stderr);
    return;
  }
  if (done != all && now - last_line_ < kBetweenLines) return;
  last_line_ = now;
  WriteLine("", std::format("{}: {} of {}, {}{}", doing_, done, all, what, left));
}

}  // namespace sluice
