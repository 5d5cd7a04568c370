// What a subcommand is: options that CLI11 fills in, and what to do with them.
#ifndef SLUICE_QUANT_CLI_COMMAND_H_
#define SLUICE_QUANT_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "sluice/error.h"

namespace sluice {

// How the program was called.
struct Invocation {
  std::string command;          // as it would be typed into a shell
  std::function<Status()> run;  // set by the subcommand that was named
};

// Each adds one subcommand to `app`.
void AddQuantize(CLI::App& app, Invocation& invocation);
void AddEval(CLI::App& app, Invocation& invocation);
void AddCapture(CLI::App& app, Invocation& invocation);
void AddReport(CLI::App& app, Invocation& invocation);
void AddInspect(CLI::App& app, Invocation& invocation);
void AddRun(CLI::App& app, Invocation& invocation);
void AddUnpack(CLI::App& app, Invocation& invocation);
void AddBench(CLI::App& app, Invocation& invocation);
void AddCpu(CLI::App& app, Invocation& invocation);

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_COMMAND_H_
