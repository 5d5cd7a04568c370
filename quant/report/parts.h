// The parts of a block that its error is attributed to, in the order of the report's columns.
#ifndef SLUICE_QUANT_REPORT_PARTS_H_
#define SLUICE_QUANT_REPORT_PARTS_H_

#include <array>
#include <optional>
#include <string_view>

#include "quant/analysis/block_report.h"

namespace sluice {

struct Part {
  std::string_view key;   // in JSON
  std::string_view name;  // for a person
  // The block's relative L2 error with only this part quantized; nullopt: the block has no gate.
  std::optional<double> (*error)(const Attribution&);
};

inline constexpr std::array<Part, 5> kParts = {{
    {"gate", "gate", [](const Attribution& a) { return a.matrices[Matrix::kGate]; }},
    {"up", "up", [](const Attribution& a) { return a.matrices[Matrix::kUp]; }},
    {"down", "down", [](const Attribution& a) { return a.matrices[Matrix::kDown]; }},
    {"input_activations", "input activations",
     [](const Attribution& a) { return std::optional(a.input_activations); }},
    {"hidden_activations", "hidden activations",
     [](const Attribution& a) { return std::optional(a.hidden_activations); }},
}};

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_PARTS_H_
