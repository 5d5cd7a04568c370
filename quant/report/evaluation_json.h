// One packed file's figures of an evaluation, in the JSON documents that have them.
#ifndef SLUICE_QUANT_REPORT_EVALUATION_JSON_H_
#define SLUICE_QUANT_REPORT_EVALUATION_JSON_H_

#include "quant/analysis/evaluate.h"
#include "quant/report/json_text.h"

namespace sluice {

// An entry of `files` in schema "sluice.eval/1".
Json FileEvaluationJson(const FileEvaluation& file);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_EVALUATION_JSON_H_
