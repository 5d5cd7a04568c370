// In which types the checkpoint stores the matrices that were quantized. Errors are relative to the
// values that it holds: where those were integers already, not to the model that they were once
// made from.
#ifndef SLUICE_QUANT_ANALYSIS_SOURCE_REPORT_H_
#define SLUICE_QUANT_ANALYSIS_SOURCE_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "sluice/model.h"

namespace sluice {

struct SourceReport {
  std::map<std::string, size_t> types;  // "BF16", "Q4_1", … to the number of matrices that have it
  size_t quantized = 0;                 // matrices whose type is not a plain float
  uint64_t bytes = 0;                   // of all of them in the source
};

// Of the matrices of `checkpoint` that `layers`, the layers of a packed file, have too.
SourceReport DescribeSource(const Checkpoint& checkpoint, const std::vector<LayerInfo>& layers);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_SOURCE_REPORT_H_
