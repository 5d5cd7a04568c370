#include "quant/cli/pick_formats.h"

#include <algorithm>
#include <format>
#include <map>
#include <utility>

#include "quant/cli/console.h"
#include "quant/decoder/decoder.h"
#include "quant/quantizer/sensitivity.h"
#include "quant/report/numbers.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// Matrices that the explanation names.
constexpr size_t kNamed = 5;

std::vector<WeightFormat> Candidates() {
  std::vector<WeightFormat> formats;
  for (const WeightFormat f : kWeightFormats) {
    if (f.quantized()) formats.push_back(f);
  }
  return formats;
}

// What the matrices would cost in their cheapest format, dearest first: those are what bits went
// to.
std::string Why(const std::vector<MatrixOptions>& matrices, const FormatChoice& choice) {
  std::map<std::string, size_t> counts;
  std::vector<std::pair<double, size_t>> costs;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const auto& options = matrices[i].options;
    ++counts[Name(options[choice.picked[i]].format)];
    const auto smallest = std::ranges::min_element(options, {}, &FormatOption::bytes);
    costs.emplace_back(-smallest->loss, i);
  }
  std::string text =
      std::format("  formats chosen: {} bits per weight;", Significant(choice.bits, 4));
  for (const auto& [name, count] : counts) text += std::format(" {} x {}", count, name);
  text += "\n  the matrices that suffer most from the fewest bits, and what they got:\n";
  std::ranges::sort(costs);
  for (const auto& [cost, i] : std::span(costs).first(std::min(kNamed, costs.size()))) {
    const FormatOption& picked = matrices[i].options[choice.picked[i]];
    text += std::format("    layer {} {}: predicted loss {}, with {} {}\n", matrices[i].layer,
                        Name(matrices[i].matrix), Significant(-cost), Name(picked.format),
                        Significant(picked.loss));
  }
  return text;
}

}  // namespace

Expected<PickedFormats> PickFormats(const PickSettings& settings, const ThreadPool& pool) {
  SLUICE_ASSIGN(const Decoder decoder, Decoder::Open(settings.model, settings.config));
  SLUICE_ASSIGN(const Tokens tokens, ReadTokens(settings.tokens, decoder));
  Progress progress("measuring sensitivities", settings.quiet);
  SensitivityOptions options;
  options.formats = Candidates();
  options.activations = settings.activations;
  options.progress = [&](size_t done, size_t all) {
    progress.Show(done, all, std::format("layer {}", done - 1));
  };
  SLUICE_ASSIGN(std::vector<MatrixOptions> matrices,
                MeasureSensitivity(decoder, tokens, options, &pool));
  std::erase_if(matrices, [&](const MatrixOptions& m) {
    return settings.layers && !settings.layers->contains(m.layer);
  });
  if (matrices.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "--layers: the model has no such layers");
  }
  PickedFormats picked;
  SLUICE_ASSIGN(picked.choice, ChooseFormats(matrices, settings.budget));
  for (size_t i = 0; i < matrices.size(); ++i) {
    const MatrixOptions& m = matrices[i];
    const WeightFormat format = m.options[picked.choice.picked[i]].format;
    picked.overrides.push_back({std::format("{}:{}={}", m.layer, Name(m.matrix), Name(format)),
                                {{m.layer, m.layer}},
                                m.matrix,
                                format});
  }
  picked.why = Why(matrices, picked.choice);
  return picked;
}

}  // namespace sluice
