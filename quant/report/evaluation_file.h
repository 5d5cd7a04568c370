// What `sluice eval --json` wrote, read again, so that a report can say what the model lost.
#ifndef SLUICE_QUANT_REPORT_EVALUATION_FILE_H_
#define SLUICE_QUANT_REPORT_EVALUATION_FILE_H_

#include <string>

#include "quant/analysis/block_report.h"
#include "quant/analysis/evaluate.h"
#include "sluice/error.h"

namespace sluice {

// A document of schema "sluice.eval/1". Figures that are null become NaN. Errors name `path` and
// the key: another schema, a key that is missing or of another type.
Expected<Evaluation> ReadEvaluation(const std::string& path);

// The figures of the packed file `file`: of the entry that names the same file on disk or, if none
// does, the only one whose name without folders is the same. Errors name `path`, where the
// evaluation comes from, and the files that it has.
Expected<ModelLoss> LossOf(const Evaluation& evaluation, const std::string& path,
                           const std::string& file);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_EVALUATION_FILE_H_
