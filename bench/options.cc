#include "bench/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>

#include "bench/library.h"
#include "quant/cli/bench_block.h"
#include "sluice/cpu.h"
#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/format/pack.h"

namespace sluice::bench {
namespace {

constexpr char kDescription[] =
    "Whole feed-forward blocks through the public interface, and the same blocks by other "
    "libraries, "
    "whose results are checked in double precision first.";
constexpr char kFooter[] =
    "All options of Google Benchmark work as well, as in\n"
    "  --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true\n"
    "which is how libraries are compared, --benchmark_filter=REGEX, --benchmark_min_time=0.1s,\n"
    "--benchmark_list_tests, --benchmark_out=FILE.\n\n"
    "--target restricts sluice only. Others have ways of their own: oneDNN takes\n"
    "ONEDNN_MAX_CPU_ISA=AVX2 (AVX2_VNNI, AVX512_CORE_VNNI, AVX512_CORE_AMX…) from the "
    "environment,\n"
    "ggml is restricted when it is built, XNNPACK and ONNX Runtime cannot be.\n"
    "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 gives the others' weights huge pages too.";

// Of an installed program, beside it; else the source tree's.
std::string ShapesFolder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::filesystem::path installed = program.parent_path().parent_path() / "share/sluice/shapes";
  if (!error && std::filesystem::is_directory(installed, error)) return installed;
  return SLUICE_BENCH_SHAPES;
}

// Values that are parsed as they are read, so that a wrong one is a usage error.
template <class T>
CLI::Option* AddList(CLI::App& app, const std::string& name, std::vector<T>& to,
                     const std::function<Expected<std::vector<T>>(const std::string&)>& parse,
                     const std::string& help) {
  return app
      .add_option_function<std::vector<std::string>>(
          name,
          [&to, parse, name](const std::vector<std::string>& texts) {
            to.clear();
            for (const std::string& text : texts) {
              const Expected<std::vector<T>> values = parse(text);
              if (!values) throw CLI::ValidationError(name, values.error().message);
              for (const T& value : *values) {
                if (!std::ranges::contains(to, value)) to.push_back(value);
              }
            }
          },
          help)
      ->delimiter(',')
      ->allow_extra_args(false);
}

Expected<std::vector<BlockFormat>> ParseFormats(const std::string& text) {
  SLUICE_ASSIGN(const BlockFormat format, ParseBlockFormat(text));
  return std::vector{format};
}

Expected<std::vector<std::string>> ParseRivals(const std::string& text) {
  std::vector<std::string> all;
  std::string known;
  for (const Library& library : Rivals()) {
    all.emplace_back(library.name);
    known += std::string(library.name) + ", ";
  }
  if (text == "all") return all;
  if (text == "none") return std::vector<std::string>();
  if (std::ranges::contains(all, text)) return std::vector{text};
  return Fail(ErrorCode::kInvalidArgument, "{} is not built in; known: {}all, none", Quote(text),
              known);
}

void AddFfnOptions(CLI::App& app, Options& options, std::string& shapes_folder) {
  // Before --shapes: values are taken in this order.
  app.add_option(
         "--shapes-folder", shapes_folder,
         "The folder of files of shapes. The default is the one that came with the program.")
      ->type_name("DIR");
  AddList<Shape>(
      app, "--shapes", options.shapes,
      [&shapes_folder](const std::string& text) { return ParseShapes(text, shapes_folder); },
      "Blocks: DxM, a model's name, or a file of them; bench/shapes has some. The default is "
      "acceptance.")
      ->type_name("SHAPE[,...]");
  AddList<BlockFormat>(app, "--formats", options.formats, ParseFormats,
                       "Weight formats, each with +row or +block if the activations are not to be "
                       "the default ones. The default is qb4w:32,qc8w.")
      ->type_name("FMT[,...]");
  app.add_option("--tokens", options.tokens, "Tokens in a call. The default is 1,4,16,128.")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 16))
      ->type_name("T[,...]");
  app.add_flag("--cold",
               "Each call reads weights that are in no cache, from a ring of copies over "
               "three times as large as the last-level cache. The default.");
  app.add_flag("--warm", options.warm, "Every call reads the same weights. With --cold: both.");
  AddList<std::string>(
      app, "--rivals", options.rivals, ParseRivals,
      "Other libraries to measure beside sluice, all or none. The default is none.")
      ->type_name("NAME[,...]");
  app.add_option("--target", options.target,
                 "The instruction set of sluice's kernels, as `sluice cpu` lists them, and of the "
                 "limits. The default is the best.")
      ->type_name("NAME");
  app.add_option_function<std::string>(
         "--pages",
         [&options](const std::string& text) {
           const auto kind = ParsePageKind(text);
           if (!kind) throw CLI::ValidationError("--pages", kind.error().message);
           options.pages = *kind;
         },
         "4k or huge: the memory that sluice's weights lie in, and that the DRAM limit is read "
         "from. The default is huge.")
      ->type_name("KIND");
}

void AddSharedOptions(CLI::App& app, Options& options, double& cache_mib) {
  app.add_option("--threads", options.threads,
                 "Numbers of threads. The default is 1 and as many as this process may use.")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->type_name("N[,...]");
  app.add_option(
         "--cache-mib", cache_mib,
         "Take the last-level cache to be this large, in place of what the system says: the "
         "ring of cold weights is three times that.")
      ->check(CLI::PositiveNumber)
      ->type_name("MIB");
  app.add_option("--governor-was", options.governor_was,
                 "For the record: the CPU's governor before it was changed for this run.")
      ->type_name("NAME");
  app.add_option("--device-root", options.device_root,
                 "Read below DIR what /proc, /sys and the firmware tell of the device; for tests.")
      ->type_name("DIR");
}

// What CLI11 left must be Google Benchmark's.
Status TakeRest(const std::vector<std::string>& remaining, char* program, CommandLine& line) {
  static std::deque<std::string> kept;  // Google Benchmark keeps pointers
  line.rest = {program};
  for (const std::string& argument : remaining) {
    if (!argument.starts_with("--benchmark_") && !argument.starts_with("--v=")) {
      return Fail(ErrorCode::kInvalidArgument, "unknown argument {} (--help)", Quote(argument));
    }
    line.rest.push_back(kept.emplace_back(argument).data());
  }
  return {};
}

Status SetDefaults(const CLI::App& app, Program program, double cache_mib,
                   const std::string& shapes_folder, Options& options) {
  options.cache_bytes =
      cache_mib > 0 ? static_cast<uint64_t>(cache_mib * 1024 * 1024) : LastLevelCacheBytes();
  if (options.threads.empty()) {
    options.threads = {1};
    if (DefaultThreads() > 1) options.threads.push_back(DefaultThreads());
  }
  if (program != Program::kFfn) return {};
  options.cold = !options.warm || app.count("--cold") != 0;
  if (options.formats.empty()) {
    options.formats = {{{WeightType::kInt4, 32}, {}}, {{WeightType::kInt8, 0}, {}}};
  }
  if (options.shapes.empty()) {
    SLUICE_ASSIGN(options.shapes, ParseShapes("acceptance", shapes_folder));
  }
  return {};
}

}  // namespace

ActivationFormat BlockFormat::used() const {
  const PerMatrix<WeightFormat> all = {{weights, weights, weights}};
  return (activations ? ActivationsFor(all, true, *activations) : DefaultActivations(all, true))
      .input;
}

std::string Name(const BlockFormat& format) {
  std::string name = Name(format.weights);
  if (format.activations) name += "+" + std::string(Name(*format.activations));
  return name;
}

Expected<BlockFormat> ParseBlockFormat(std::string_view name) {
  const size_t plus = name.find('+');
  BlockFormat format;
  SLUICE_ASSIGN(format.weights, ParseWeightFormat(name.substr(0, plus)));
  if (plus == std::string_view::npos) return format;
  SLUICE_ASSIGN(const ActivationFormat activations, ParseActivationFormat(name.substr(plus + 1)));
  if (!format.weights.quantized() || activations == ActivationFormat::kFloat) {
    return Fail(ErrorCode::kInvalidArgument, "{}: quantized weights take +row or +block",
                Quote(name));
  }
  // The default is spelled one way, so that results have one name.
  if (format.used() != activations) format.activations = activations;
  return format;
}

CommandLine ParseCommandLine(Program program, int argc, char** argv) {
  CommandLine line;
  CLI::App app(program == Program::kFfn
                   ? kDescription
                   : "What this machine's memory, arithmetic and threads reach.");
  app.footer(program == Program::kFfn ? kFooter : "All options of Google Benchmark work as well.");
  app.allow_extras();
  double cache_mib = 0;
  std::string shapes_folder = ShapesFolder();
  if (program == Program::kFfn) AddFfnOptions(app, line.options, shapes_folder);
  AddSharedOptions(app, line.options, cache_mib);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    line.status = app.exit(error) == 0 ? 0 : 2;
    return line;
  }
  Status status = TakeRest(app.remaining(), argv[0], line);
  if (status) status = SetDefaults(app, program, cache_mib, shapes_folder, line.options);
  if (!status) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    line.status = 2;
  }
  return line;
}

}  // namespace sluice::bench
