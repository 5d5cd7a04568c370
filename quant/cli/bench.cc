// sluice bench: how fast a block runs.
#include <algorithm>
#include <array>
#include <charconv>
#include <format>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quant/cli/bench_block.h"
#include "quant/cli/bench_measure.h"
#include "quant/cli/bench_results.h"
#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/cli/files.h"
#include "quant/cli/options.h"
#include "quant/report/numbers.h"
#include "sluice/cpu.h"
#include "sluice/model.h"
#include "src/base/atomic_file.h"
#include "src/base/cpu_name.h"
#include "src/base/default_threads.h"
#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

// Copies of a block take this many times the last-level cache, so that nothing of a block is left
// in it when its turn comes again.
constexpr uint64_t kCacheMultiple = 3;
// The part of the available memory that copies may take; and of tiny blocks, how many there may be.
constexpr double kMemoryShare = 0.6;
constexpr uint64_t kMaxCopies = 100000;

struct Shape {
  size_t d = 0;
  size_t m = 0;
};

struct Options {
  std::optional<std::string> file;
  std::optional<Shape> shape;
  std::optional<size_t> layer;
  std::vector<WeightFormat> weights = {{WeightType::kInt4, 32}};
  std::optional<ActivationFormat> activations;
  std::vector<size_t> batch = {1, 4, 16, 128};
  std::vector<size_t> threads;
  std::vector<std::string> backends = {"highway"};
  std::vector<std::string> targets;
  std::string cache = "cold";
  size_t rounds = 11;
  std::optional<std::string> json;
  bool quiet = false;
};

Expected<Shape> ParseShape(std::string_view text) {
  const size_t comma = text.find(',');
  const auto number = [&](std::string_view part) { return ParsePositive(part, kMaxK); };
  if (comma != std::string_view::npos) {
    const auto d = number(text.substr(0, comma));
    const auto m = number(text.substr(comma + 1));
    if (d && m) return Shape{*d, *m};
  }
  return Fail(ErrorCode::kInvalidArgument, "{} is not D,M: two numbers from 1 to {}", Quote(text),
              kMaxK);
}

Expected<size_t> ParseTokens(std::string_view text) { return ParsePositive(text, 1 << 16); }
Expected<size_t> ParseRounds(std::string_view text) { return ParsePositive(text, 100000); }

Expected<std::string> ParseCache(std::string_view text) {
  if (text == "cold" || text == "warm") return std::string(text);
  return Fail(ErrorCode::kInvalidArgument, "unknown cache state {}; known: cold, warm",
              Quote(text));
}

// What a backend computes with: which of its instruction sets, and in which form the activations
// are.
std::string TargetName(const std::string& backend, const std::string& target,
                       const BlockView& block, size_t tokens) {
  if (backend == "reference") return "scalar";
  if (backend != "highway") return backend;  // chooses its own
  std::vector<std::string> names;
  for (const Matrix m : kMatrices) {
    if (block.matrices[m].weights == nullptr) continue;
    const auto kernels = FindKernels(target, block.matrices[m].layout.format);
    if (!kernels) continue;
    const Kernels& used = tokens < kBatchTokens ? *kernels->decode : *kernels->batch;
    if (!std::ranges::contains(names, used.target)) names.emplace_back(used.target);
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : "+") + name;
  return all;
}

std::string ActivationsName(const std::string& backend, const BlockView& block) {
  const auto name = [&](ActivationFormat format) -> std::string {
    if (format == ActivationFormat::kFloat || backend != "xnnpack")
      return std::string(Name(format));
    return "qd8";
  };
  const std::string input = name(block.input);
  const std::string hidden = name(block.hidden);
  return input == hidden ? input : input + "/" + hidden;
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {}

  Status Run() {
    std::optional<AtomicFile> json;
    if (options_.json) {
      std::vector<std::string> inputs;
      if (options_.file) inputs.push_back(*options_.file);
      SLUICE_TRY(CheckOutputs({*options_.json}, inputs));
      SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(*options_.json));
      json.emplace(std::move(file));
    }
    SLUICE_TRY(MakeBlocks());
    SLUICE_TRY(MakePools());
    results_.cold = options_.cache == "cold";
    results_.machine = std::format("{}, {}, {} by default, last-level cache {}", CpuName(),
                                   Plural(AffinityCpus().size(), "CPU"),
                                   Plural(DefaultThreads(), "thread"), Size(CacheBytes()));
    copies_.resize(results_.blocks.size(), 1);
    if (results_.cold) PlanCopies();
    SLUICE_TRY(MakeCases());
    {
      Progress progress("measuring", options_.quiet);
      SLUICE_TRY(Measure(results_.cases, results_.blocks.front().view.d_model, options_.rounds,
                         [&](size_t round) { progress.Show(round, options_.rounds, "rounds"); }));
    }
    PrintResults();
    if (!json) return {};
    SLUICE_TRY(json->Write(BenchJson(results_)));
    return json->Commit();
  }

 private:
  static double CacheBytes() { return static_cast<double>(LastLevelCacheBytes()); }

  Status MakeBlocks() {
    if (options_.file) {
      SLUICE_ASSIGN(Model model, OpenPacked(*options_.file));
      model_.emplace(std::move(model));
      const size_t layer = options_.layer.value_or(model_->layers().front().layer);
      SLUICE_ASSIGN(BenchBlock block, FileBlock(*model_, layer, options_.activations));
      results_.blocks.push_back(std::move(block));
      return {};
    }
    for (const WeightFormat format : options_.weights) {
      SLUICE_ASSIGN(BenchBlock block, RandomBlock(options_.shape->d, options_.shape->m, format,
                                                  options_.activations));
      results_.blocks.push_back(std::move(block));
    }
    return {};
  }

  Status MakePools() {
    for (const size_t threads : options_.threads) {
      if (pools_.contains(threads)) continue;
      SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(threads));
      pools_.emplace(threads, std::move(pool));
      const size_t cpus = AffinityCpus().size();
      if (threads > cpus) {
        PrintWarning(std::format("{} on {}: they will wait for each other",
                                 Plural(threads, "thread"), Plural(cpus, "CPU")));
      }
    }
    return {};
  }

  // As many copies of each block as outgrow the cache, or as memory allows.
  void PlanCopies() {
    const uint64_t wanted = kCacheMultiple * LastLevelCacheBytes();
    double total = 0;
    for (size_t b = 0; b < results_.blocks.size(); ++b) {
      const uint64_t bytes = results_.blocks[b].stored_bytes();
      copies_[b] = static_cast<size_t>(std::min(wanted / bytes + 2, kMaxCopies));
      total += static_cast<double>(copies_[b] * bytes * RingsPerBlock());
    }
    const double allowed = kMemoryShare * static_cast<double>(AvailableMemoryBytes());
    for (size_t b = 0; b < results_.blocks.size(); ++b) {
      const auto bytes = static_cast<double>(results_.blocks[b].stored_bytes());
      if (total > allowed) {
        const double fits = static_cast<double>(copies_[b]) * allowed / total;
        copies_[b] = std::max<size_t>(1, static_cast<size_t>(fits));
      }
      const double all = bytes * static_cast<double>(copies_[b]);
      if (all >= static_cast<double>(wanted)) continue;
      PrintWarning(
          std::format("{}: only {} copies, {}, fit; part of them may stay in the last-level "
                      "cache of {}, and be faster than cold",
                      results_.blocks[b].weights, copies_[b], Size(all), Size(CacheBytes())));
    }
  }

  // Backends that read the packed layout share one ring of copies; XNNPACK makes copies of its own,
  // for each number of threads.
  size_t RingsPerBlock() const {
    size_t rings = 0;
    bool packed = false;
    for (const std::string& backend : options_.backends) {
      if (backend == "xnnpack") rings += pools_.size();
      packed = packed || backend != "xnnpack";
    }
    return rings + (packed ? 1 : 0);
  }

  Status MakeCases() {
    std::string lacking;
    for (size_t b = 0; b < results_.blocks.size(); ++b) {
      std::optional<BlockRing> memory;
      if (!std::ranges::all_of(options_.backends, [](auto& name) { return name == "xnnpack"; })) {
        SLUICE_ASSIGN(BlockRing ring, BlockRing::Create(results_.blocks[b].view, copies_[b]));
        memory.emplace(std::move(ring));
      }
      const auto position = std::make_shared<size_t>(0);
      for (const size_t threads : options_.threads) {
        for (const auto& [backend, target] : Combinations()) {
          const auto ring = MakeRing(b, memory, position, threads, backend, target);
          if (ring) {
            AddCases(b, threads, backend, target, *ring);
          } else {
            Skip(ring.error().message, lacking);
          }
        }
      }
      if (memory) memory_.push_back(*std::move(memory));
    }
    if (results_.cases.empty()) return Fail(ErrorCode::kUnsupported, "{}", lacking);
    SortCases();
    return {};
  }

  // Each backend once, highway once for each target.
  std::vector<std::pair<std::string, std::string>> Combinations() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string& backend : options_.backends) {
      if (backend != "highway" || options_.targets.empty()) {
        all.emplace_back(backend, "");
        continue;
      }
      for (const std::string& target : options_.targets) all.emplace_back(backend, target);
    }
    return all;
  }

  Expected<RunnerRing*> MakeRing(size_t b, const std::optional<BlockRing>& memory,
                                 const std::shared_ptr<size_t>& position, size_t threads,
                                 const std::string& backend, const std::string& target) {
    SLUICE_ASSIGN(const Backend* const maker, FindBackend(backend));
    const RunnerOptions options = {target, &pools_.at(threads)};
    auto ring = std::make_unique<RunnerRing>();
    const bool own_copies = backend == "xnnpack";
    if (!own_copies) ring->next = position;
    for (size_t i = 0; i < copies_[b]; ++i) {
      const BlockView& view = own_copies ? results_.blocks[b].view : memory->views()[i];
      SLUICE_ASSIGN(auto runner, maker->create(view, options));
      ring->runners.push_back(std::move(runner));
    }
    rings_.push_back(std::move(ring));
    return rings_.back().get();
  }

  void AddCases(size_t b, size_t threads, const std::string& backend, const std::string& target,
                RunnerRing* ring) {
    const BlockView& view = results_.blocks[b].view;
    for (const size_t tokens : options_.batch) {
      BenchCase c;
      c.weights = results_.blocks[b].weights;
      c.activations = ActivationsName(backend, view);
      c.tokens = tokens;
      c.threads = threads;
      c.backend = backend;
      c.target = TargetName(backend, target, view, tokens);
      c.block = b;
      c.ring = ring;
      results_.cases.push_back(std::move(c));
    }
  }

  // Among several combinations one that cannot be had is left out, once and with a line.
  void Skip(const std::string& reason, std::string& lacking) {
    if (std::ranges::contains(skipped_, reason)) return;
    skipped_.push_back(reason);
    if (lacking.empty()) lacking = reason;
  }

  // What is compared side by side: weights, tokens, threads; then in the order asked for.
  void SortCases() {
    std::ranges::stable_sort(results_.cases, [](const BenchCase& a, const BenchCase& b) {
      return std::tie(a.block, a.tokens, a.threads) < std::tie(b.block, b.tokens, b.threads);
    });
    for (const std::string& line : skipped_) PrintNote("left out: " + line);
  }

  void PrintResults() const {
    const BlockView& view = results_.blocks.front().view;
    std::string text = std::format("{}\n", results_.machine);
    text += std::format(
        "Block of {} × {}, {}{}; median of {} rounds; speed against the first of each "
        "group\n",
        view.d_model, view.d_ff, view.gated ? "gated " : "", Name(view.activation),
        options_.rounds);
    for (size_t b = 0; b < results_.blocks.size(); ++b) {
      if (!std::ranges::contains(results_.cases, b, &BenchCase::block)) continue;
      const auto bytes = static_cast<double>(results_.blocks[b].stored_bytes());
      const auto all = bytes * static_cast<double>(copies_[b]);
      text += std::format("  {}: {}", results_.blocks[b].weights, Size(bytes));
      text += results_.cold ? std::format("; cold: {} copies in turn, {}, {} times the cache\n",
                                          copies_[b], Size(all), Significant(all / CacheBytes(), 2))
                            : "; warm: one copy again and again\n";
    }
    text += "\n" + BenchText(results_);
    if (std::ranges::any_of(results_.cases,
                            [](auto& c) { return c.activations.contains("qd8"); })) {
      text += "\nxnnpack quantizes activations in its own way: qd8, per token, asymmetric.\n";
    }
    Print(text);
  }

  const Options& options_;
  // In this order, so that what is used outlives its users.
  std::optional<Model> model_;
  std::map<size_t, ThreadPool> pools_;
  std::vector<BlockRing> memory_;
  BenchResults results_;
  std::vector<std::unique_ptr<RunnerRing>> rings_;
  std::vector<size_t> copies_;  // by block
  std::vector<std::string> skipped_;
};

// What CLI11 cannot express: thrown while parsing, so that it is a usage error.
void CheckUsage(const CLI::App& sub, Options& options) {
  if (options.file.has_value() == options.shape.has_value()) {
    throw CLI::ValidationError("bench", "give either FILE or --shape D,M");
  }
  if (options.file && sub.count("--weights") != 0) {
    throw CLI::ValidationError("--weights", "FILE has its own formats");
  }
  if (options.layer && !options.file) {
    throw CLI::ValidationError("--layer", "only a FILE has layers");
  }
  if (!options.targets.empty() && !std::ranges::contains(options.backends, "highway")) {
    throw CLI::ValidationError("--target", "only the highway backend takes one");
  }
  if (options.threads.empty()) options.threads = {DefaultThreads()};
  const auto drop_repeated = [](auto& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      list.erase(
          std::remove(list.begin() + static_cast<std::ptrdiff_t>(i) + 1, list.end(), list[i]),
          list.end());
    }
  };
  drop_repeated(options.weights);
  drop_repeated(options.batch);
  drop_repeated(options.threads);
  drop_repeated(options.backends);
  drop_repeated(options.targets);
}

void AddSubject(CLI::App& sub, Options& options) {
  sub.add_option("FILE", options.file, "A packed file, one of whose layers is measured.");
  AddParsed(sub, "--layer", options.layer, "N", ParseNumber,
            "The layer of FILE to measure, by the model's own number. The default is the first.");
  AddParsed(sub, "--shape", options.shape, "D,M", ParseShape,
            "Without FILE: a gated SiLU block of random weights with d_model D and d_ff M.");
  AddParsedList(sub, "--weights", options.weights, "FMT[,FMT...]", ParseWeightFormat, ',',
                std::format("Weight formats of that block: {}.", FormatNames()))
      ->default_str("qb4w:32");
  AddParsed(
      sub, "--activations", options.activations, "row|block", ParseQuantizedActivation,
      "How activations are quantized. The default goes with the weights: block where they have "
      "blocks, else row.");
}

void AddConditions(CLI::App& sub, Options& options) {
  AddParsedList(sub, "--batch", options.batch, "T[,T...]", ParseTokens, ',', "Tokens in a call.")
      ->default_str("1,4,16,128");
  AddParsedList(sub, "--threads", options.threads, "N[,N...]", ParseThreads, ',',
                "Numbers of threads.")
      ->default_str(std::to_string(DefaultThreads()));
  AddParsedList(sub, "--backend", options.backends, "B[,B...]", ParseBackend, ',',
                "Backends: highway, xnnpack, reference. The others' speed is given against the "
                "first one's.")
      ->default_str("highway");
  AddParsedList(
      sub, "--target", options.targets, "T[,T...]", ParseTarget, ',',
      "Instruction sets of the highway backend, in place of the best one; `sluice cpu` lists "
      "them.");
  AddParsed(
      sub, "--cache", options.cache, "cold|warm", ParseCache,
      "cold: each call reads weights that are in no cache, from a ring of copies more than 3 "
      "times as large as the last-level cache, as a model's layers are. warm: every call reads "
      "the same weights.")
      ->default_str("cold");
  AddParsed(
      sub, "--rounds", options.rounds, "N", ParseRounds,
      "Samples of each combination. In each round every combination takes one, in an order that "
      "rotates, so that ratios hold on a busy machine. A sample lasts at least 2 ms.")
      ->default_str("11");
}

}  // namespace

void AddBench(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "bench",
      "Measure how fast a block runs.\n"
      "Times one feed-forward block in all combinations of the formats, batch sizes, thread counts "
      "and backends given, interleaved. What a backend cannot do is left out with a line; if "
      "nothing is "
      "left, that is an error.");
  AddSubject(*sub, *options);
  AddConditions(*sub, *options);
  sub->add_option("--json", options->json, "Write the results as JSON, schema sluice.bench/1.")
      ->type_name("FILE");
  AddQuiet(*sub, options->quiet, "No progress.");
  sub->footer(
      "GB/s counts the stored weight bytes, GOP/s 6 · D · M operations a token\n"
      "(4 · D · M without a gate), both over the median.\n\n"
      "Examples:\n"
      "  sluice bench --shape 576,1536\n"
      "  sluice bench --shape 2048,5632 --weights qb4w:32,qc8w --batch 1,128 --threads 1,2 \\\n"
      "      --backend highway,xnnpack\n"
      "  sluice bench smol.safetensors --layer 3 --cache warm --json bench.json");
  sub->callback([options, sub, &invocation] {
    CheckUsage(*sub, *options);
    invocation.run = [options] { return Bench(*options).Run(); };
  });
}

}  // namespace sluice
