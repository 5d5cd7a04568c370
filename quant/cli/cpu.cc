// sluice cpu: what this CPU offers and which kernels follow from it.
#include "sluice/cpu.h"

#include <algorithm>
#include <format>
#include <memory>
#include <string>

#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/report/json_text.h"
#include "quant/report/numbers.h"
#include "quant/report/text_table.h"
#include "src/base/cpu_name.h"
#include "src/base/default_threads.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

std::string CpuJson() {
  Json features = Json::array();
  for (const CpuFeature& feature : CpuFeatures()) {
    if (feature.present && !feature.hidden) features.push_back(feature.name);
  }
  Json targets = Json::array();
  for (const TargetInfo& target : Targets()) {
    targets.push_back(
        {{"name", target.name}, {"available", target.available}, {"reason", target.reason}});
  }
  Json kernels = Json::object();
  for (const WeightFormat format : kWeightFormats) {
    const KernelChoice choice = ChooseKernels(format);
    kernels[Name(format)] = {{"decode", choice.decode}, {"batch", choice.batch}};
  }
  return JsonText({{"schema", "sluice.cpu/1"},
                   {"features", std::move(features)},
                   {"targets", std::move(targets)},
                   {"kernels", std::move(kernels)}});
}

std::string FeaturesText() {
  std::string present;
  std::string hidden;
  std::string absent;
  const auto add = [](std::string& list, std::string_view name) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  };
  for (const CpuFeature& feature : CpuFeatures()) {
    add(feature.hidden ? hidden : feature.present ? present : absent, feature.name);
  }
  std::string text = "Features\n";
  if (!present.empty()) text += "  used     " + present + "\n";
  if (!hidden.empty()) text += "  hidden   " + hidden + " (by SLUICE_DISABLE)\n";
  if (!absent.empty()) text += "  missing  " + absent + "\n";
  return text;
}

std::string TargetsText() {
  TextTable table({{"target", Align::kLeft}, {"usable", Align::kLeft}, {"because", Align::kLeft}});
  for (const TargetInfo& target : Targets()) {
    table.AddRow({std::string(target.name), target.available ? "yes" : "no", target.reason});
  }
  return "Targets: instruction sets that there are kernels for, best first\n" + table.Text();
}

// Why these targets: the best usable one, save where the matrix unit (a target for batches only)
// has or has not its conditions.
std::string Why(const KernelChoice& choice) {
  const auto usable = [](const RegisteredKernels& entry) { return entry.available; };
  const auto best = std::ranges::find_if(AllKernels(), usable);
  if (best == AllKernels().end()) return "none is usable";
  if (!best->batch_only) return "the best usable target";
  if (choice.batch == best->kernels->target) {
    return std::format("{} is for batches", best->kernels->target);
  }
  return std::format("{} needs integers with one scale per row", best->kernels->target);
}

std::string KernelsText() {
  TextTable table({{"format", Align::kLeft},
                   {std::format("up to {} tokens", kBatchTokens - 1), Align::kLeft},
                   {"more tokens", Align::kLeft},
                   {"because", Align::kLeft}});
  for (const WeightFormat format : kWeightFormats) {
    const KernelChoice choice = ChooseKernels(format);
    table.AddRow(
        {Name(format), std::string(choice.decode), std::string(choice.batch), Why(choice)});
  }
  return "Kernels chosen\n" + table.Text();
}

std::string ThreadsText() {
  const size_t cpus = AffinityCpus().size();
  const size_t threads = DefaultThreads();
  std::string text = std::format("Threads\n  {} by default: this process may run on {}", threads,
                                 Plural(cpus, "CPU"));
  text += threads < cpus
              ? "; the others are slower cores, or beyond the CPU quota of this container\n"
              : ", all of them fast cores, and no CPU quota allows less\n";
  return text;
}

Status Cpu(bool json) {
  if (json) {
    Print(CpuJson());
    return {};
  }
  Print(CpuName() + "\n\n" + FeaturesText() + "\n" + TargetsText() + "\n" + KernelsText() + "\n" +
        ThreadsText());
  Print(
      "\nTo force another target: --target NAME with `sluice run` and `sluice bench`.\n"
      "To hide features from all commands: SLUICE_DISABLE=NAME[,NAME] in the environment; hiding "
      "one\n"
      "hides what builds on it. Every target with fused multiply-add gives the same bits.\n");
  return {};
}

}  // namespace

void AddCpu(CLI::App& app, Invocation& invocation) {
  CLI::App* sub = app.add_subcommand(
      "cpu",
      "Show this CPU's features and the kernels chosen for it.\n"
      "Lists the instruction sets that sluice has kernels for, which of them this CPU can run and "
      "why, "
      "the kernel chosen for each weight format, the default number of threads, and how to force "
      "another choice.");
  const auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "Print JSON, schema sluice.cpu/1, instead of text.");
  sub->footer(
      "Examples:\n"
      "  sluice cpu\n"
      "  SLUICE_DISABLE=avx512 sluice cpu      what an older CPU would run\n"
      "  sluice cpu --json");
  sub->callback([json, &invocation] { invocation.run = [json] { return Cpu(*json); }; });
}

}  // namespace sluice
