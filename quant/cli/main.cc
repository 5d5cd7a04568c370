// The `sluice` command: one subcommand a file.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <format>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/cli/help.h"
#include "quant/cli/shell.h"
#include "quant/cli/suggest.h"
#include "src/base/cpu_features.h"
#include "src/base/quote.h"
#include "src/base/temporary_file.h"

namespace sluice {
namespace {

enum ExitStatus { kSuccess = 0, kFailed = 1, kUsage = 2 };

// Started without one of the standard streams (`>&-`), the process would give its number to the
// next file it opens, and print into that. Something that can be neither read nor written takes it.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0) open("/", O_RDONLY | O_DIRECTORY);
  }
}

// Removes what is half written, then ends as the signal would have, so that shells and scripts see
// what happened.
void OnSignal(int signal_number) {
  RemoveTemporaryFiles();
  raise(signal_number);  // its default, thanks to SA_RESETHAND
}

// A page of a mapped file that cannot be read: somebody made the file shorter, or its disk failed.
void OnBusError(int signal_number, siginfo_t* info, void* /*context*/) {
  RemoveTemporaryFiles();
  if (info->si_code != BUS_ADRERR) {
    raise(signal_number);
    return;
  }
  constexpr std::string_view kMessage =
      "sluice: a file can no longer be read: it became shorter meanwhile, or its disk fails\n";
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(kFailed);
}

void HandleSignals() {
  for (const int signal_number :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ}) {
    struct sigaction action = {};
    sigaction(signal_number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // by nohup, for one
    action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    sigaction(signal_number, &action, nullptr);
  }
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_NODEFER);
  sigaction(SIGBUS, &action, nullptr);
}

void WarnOfUnknownFeatures() {
  const char* disabled = std::getenv("SLUICE_DISABLE");
  if (disabled == nullptr) return;
  for (const std::string& name : UnknownFeatures(disabled)) {
    PrintWarning(
        std::format("SLUICE_DISABLE names {}, which no feature is called; `sluice cpu` lists them",
                    Quote(name)));
  }
}

void AddSubcommands(CLI::App& app, Invocation& invocation) {
  AddQuantize(app, invocation);
  AddReport(app, invocation);
  AddEval(app, invocation);
  AddCapture(app, invocation);
  AddInspect(app, invocation);
  AddRun(app, invocation);
  AddUnpack(app, invocation);
  AddBench(app, invocation);
  AddCpu(app, invocation);
  for (CLI::App* subcommand : app.get_subcommands({})) subcommand->group("Commands");
}

// CLI11 would only say that a subcommand is required.
std::string UnknownCommand(const CLI::App& app, std::string_view name) {
  std::string known;
  for (const CLI::App* subcommand : app.get_subcommands({})) {
    if (name == subcommand->get_name()) return "";
    known += (known.empty() ? "" : ", ") + subcommand->get_name();
  }
  return std::format("unknown command {}; known: {} (see sluice --help)", Quote(name), known);
}

// "unknown option "--weigths"; did you mean --weights?": of the arguments that `app` and its
// subcommand did not take, the first that looks like an option; empty if there is none.
std::string UnknownOption(const CLI::App& app, const std::vector<std::string>& remaining) {
  const auto found =
      std::ranges::find_if(remaining, [](const std::string& s) { return s.starts_with('-'); });
  if (found == remaining.end()) return "";
  const std::string name = found->substr(0, found->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  }
  const std::string nearest = Nearest(name, known);
  return std::format("unknown option {}{}", Quote(name),
                     nearest.empty() ? "" : std::format("; did you mean {}?", nearest));
}

// Help and version are no errors; everything else is one line, and where to read on.
int ReportParseError(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    app.exit(error);
    return FlushOutput() ? kSuccess : kFailed;
  }
  std::string command = "sluice";
  std::string what;
  for (const CLI::App* subcommand : app.get_subcommands()) {
    command += " " + subcommand->get_name();
    // Said before anything else: it may be why a required option is missing.
    what = UnknownOption(*subcommand, subcommand->remaining());
  }
  if (what.empty()) what = error.what();
  PrintError(std::format("{} (see {} --help)", what, command));
  return kUsage;
}

int Run(Invocation& invocation) {
  WarnOfUnknownFeatures();
  Status status = invocation.run();
  if (status) status = FlushOutput();
  if (status) return kSuccess;
  PrintError(status.error().message);
  return kFailed;
}

int Main(int argc, char** argv) {
  OccupyStandardStreams();
  HandleSignals();
  CLI::App app(
      "Feed-forward blocks of transformers in int8 and int4: quantize them, run them, and see "
      "which "
      "matrix of which layer the error comes from.",
      "sluice");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", std::string("sluice ") + SLUICE_VERSION,
                       "Print the version and exit.");
  app.set_help_flag("-h,--help", "Print this help and exit.");
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  sluice quantize SmolLM2-135M -o smol.safetensors --report smol.html\n"
      "  sluice run smol.safetensors --layer 0 --input x.safetensors --output y.safetensors\n\n"
      "`sluice COMMAND --help` explains each command. Exit status: 0 done, 1 failed, 2 wrong "
      "usage.");
  Invocation invocation;
  invocation.command = ShellCommand(argc, argv);
  AddSubcommands(app, invocation);
  if (argc <= 1) {
    PrintError("no command given; here is the help");
    std::fputs(app.help().c_str(), stderr);
    return kUsage;
  }
  // `sluice help` and `sluice help COMMAND` are `sluice --help` and `sluice COMMAND --help`.
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments[0] == "help") {
    arguments.erase(arguments.begin());
    if (arguments.size() > 1) arguments.resize(1);
    arguments.emplace_back("--help");
  }
  const std::string& first = arguments[0];
  if (first.starts_with('-')) {
    // CLI11 would miss the command first.
    if (app.get_option_no_throw(first) == nullptr) {
      PrintError(
          std::format("{} before a command (see sluice --help)", UnknownOption(app, {first})));
      return kUsage;
    }
  } else {
    const std::string error = UnknownCommand(app, first);
    if (!error.empty()) {
      PrintError(error);
      return kUsage;
    }
  }
  try {
    std::ranges::reverse(arguments);  // as CLI11 takes them
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return ReportParseError(app, error);
  }
  return Run(invocation);
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    return sluice::Main(argc, argv);
  } catch (const std::bad_alloc&) {
    sluice::PrintError("out of memory");
  } catch (const std::exception& error) {
    sluice::PrintError(std::format("internal error: {}", error.what()));
  }
  return 1;
}
