// What the figures of a report come to, in plain words.
#ifndef SLUICE_QUANT_REPORT_VERDICT_H_
#define SLUICE_QUANT_REPORT_VERDICT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quant/analysis/accounting.h"
#include "quant/analysis/block_report.h"
#include "quant/report/parts.h"

namespace sluice {

// Sentences for a person who has not seen the tables.
struct Verdict {
  std::string loss;    // what it cost the model's predictions, or how to find out
  std::string cost;    // how far the blocks' outputs are from FP32's
  std::string source;  // which part most of it comes from
  std::string size;    // what was gained
};
Verdict Judge(const ModelReport& report);

// Index in report.layers of the largest output error; what is not finite counts as largest.
// nullopt: there are no layers.
std::optional<size_t> WorstLayer(const ModelReport& report);

// The mean over all layers of the error with only `part` quantized; nullopt: no layer has it.
std::optional<double> MeanError(const ModelReport& report, const Part& part);

// The packed file's name without its folders, printable.
std::string FileName(const ModelReport& report);

// The bytes that all matrices would take in FP32.
uint64_t Fp32Bytes(const ModelReport& report);

// Loud words for a report made from random inputs; empty for one made from real ones.
std::string RandomInputsWarning(const ModelReport& report);

// The figures in a size: what was stored, against FP32 and against what the source stores.
std::string SizeVerdict(const FfnTotals& stored, const SourceReport& source);

// Loud words where the source was quantized before; empty where it was not.
std::string QuantizedSourceWarning(const SourceReport& source);

// Loud words where the file's gate and up look swapped, with the layers; empty elsewhere.
std::string SwapWarning(const ModelReport& report);

// The report's warnings without the one that RandomInputsWarning puts in larger letters.
std::vector<std::string> OtherWarnings(const ModelReport& report);

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_VERDICT_H_
