#include "quant/report/evaluation.h"

#include <format>
#include <utility>

#include "quant/report/evaluation_json.h"
#include "quant/report/numbers.h"
#include "quant/report/printable.h"
#include "quant/report/text_table.h"

namespace sluice {

Json FileEvaluationJson(const FileEvaluation& file) {
  Json positions = Json::array();
  for (const double kl : file.per_position) positions.push_back(NumberOrNull(kl));
  return {{"file", file.file},
          {"bits_per_weight", NumberOrNull(file.bits_per_weight)},
          {"layers", file.layers},
          {"perplexity", NumberOrNull(file.perplexity)},
          {"kl",
           {{"mean", NumberOrNull(file.kl.mean)},
            {"median", NumberOrNull(file.kl.median)},
            {"p99", NumberOrNull(file.kl.p99)},
            {"max", NumberOrNull(file.kl.max)}}},
          {"top1_agreement", NumberOrNull(file.top1_agreement)},
          {"per_position", std::move(positions)}};
}

std::string EvaluationText(const Evaluation& evaluation) {
  std::string text =
      std::format("{} on {}: {} in windows of {}, {}\n\n", Printable(evaluation.model),
                  Printable(evaluation.source), Plural(evaluation.tokens, "token"),
                  evaluation.context, Plural(evaluation.predictions, "prediction"));
  TextTable table({{"blocks", Align::kLeft},
                   {"bits"},
                   {"perplexity"},
                   {"KL mean"},
                   {"median"},
                   {"99 %"},
                   {"max"},
                   {"same top token"}});
  table.AddRow({"FP32", "32", Significant(evaluation.fp32_perplexity, 5), "-", "-", "-", "-", "-"});
  for (const FileEvaluation& file : evaluation.files) {
    table.AddRow({Printable(file.file), std::format("{:.2f}", file.bits_per_weight),
                  Significant(file.perplexity, 5), Significant(file.kl.mean),
                  Significant(file.kl.median), Significant(file.kl.p99), Significant(file.kl.max),
                  Percent(file.top1_agreement)});
  }
  return text + table.Text();
}

std::string EvaluationJson(const Evaluation& evaluation) {
  Json files = Json::array();
  for (const FileEvaluation& file : evaluation.files) files.push_back(FileEvaluationJson(file));
  const Json json = {{"schema", "sluice.eval/1"},
                     {"model", evaluation.model},
                     {"source", evaluation.source},
                     {"tokens", evaluation.tokens},
                     {"predictions", evaluation.predictions},
                     {"context", evaluation.context},
                     {"fp32", {{"perplexity", NumberOrNull(evaluation.fp32_perplexity)}}},
                     {"files", std::move(files)}};
  return JsonText(json);
}

}  // namespace sluice
