// An evaluation for people, and for programs: schema "sluice.eval/1",
// quant/report/schema/eval.schema.json.
#ifndef SLUICE_QUANT_REPORT_EVALUATION_H_
#define SLUICE_QUANT_REPORT_EVALUATION_H_

#include <string>

#include "quant/analysis/evaluate.h"

namespace sluice {

// A table for a terminal, FP32 first.
std::string EvaluationText(const Evaluation& evaluation);
// The whole JSON document, indented, ending in a line feed. What is not finite is null.
std::string EvaluationJson(const Evaluation& evaluation);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_EVALUATION_H_
