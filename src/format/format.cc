#include "sluice/format.h"

#include <algorithm>
#include <string>
#include <utility>

#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// Finds the element whose name is `name`, or fails with all names listed.
template <class Table>
auto Lookup(const Table& table, std::string_view what, std::string_view name)
    -> Expected<std::decay_t<decltype(std::begin(table)->second)>> {
  std::string known;
  for (const auto& [key, value] : table) {
    if (key == name) return value;
    if (!known.empty()) known += ", ";
    known += key;
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown {} {}; known: {}", what, Quote(name), known);
}

template <class Table, class Value>
auto NameIn(const Table& table, const Value& value) {
  return std::ranges::find(table, value, [](const auto& entry) { return entry.second; })->first;
}

using Entry = std::string_view;

constexpr std::pair<Entry, Matrix> kMatrixNames[] = {
    {"gate", Matrix::kGate}, {"up", Matrix::kUp}, {"down", Matrix::kDown}};

constexpr std::pair<Entry, WeightFormat> kFormatNames[] = {
    {"f32", {WeightType::kF32, 0}},         {"bf16", {WeightType::kBf16, 0}},
    {"qb8w:32", {WeightType::kInt8, 32}},   {"qc8w", {WeightType::kInt8, 0}},
    {"qb4w:32", {WeightType::kInt4, 32}},   {"qb4w:64", {WeightType::kInt4, 64}},
    {"qb4w:128", {WeightType::kInt4, 128}}, {"qc4w", {WeightType::kInt4, 0}}};

constexpr std::pair<Entry, ActivationFormat> kActivationFormatNames[] = {
    {"f32", ActivationFormat::kFloat},
    {"row", ActivationFormat::kRow},
    {"block", ActivationFormat::kBlock}};

// Our own name first; the others are those of checkpoints' configurations.
constexpr std::pair<Entry, Activation> kActivationNames[] = {
    {"relu", Activation::kRelu},         {"relu2", Activation::kRelu2},
    {"gelu", Activation::kGelu},         {"gelu_tanh", Activation::kGeluTanh},
    {"silu", Activation::kSilu},         {"sigmoid", Activation::kSigmoid},
    {"identity", Activation::kIdentity}, {"swish", Activation::kSilu},
    {"gelu_new", Activation::kGeluTanh}, {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"linear", Activation::kIdentity}};

}  // namespace

std::string_view Name(Matrix matrix) { return NameIn(kMatrixNames, matrix); }
Expected<Matrix> ParseMatrix(std::string_view name) { return Lookup(kMatrixNames, "matrix", name); }

std::string Name(WeightFormat format) { return std::string(NameIn(kFormatNames, format)); }
Expected<WeightFormat> ParseWeightFormat(std::string_view name) {
  return Lookup(kFormatNames, "weight format", name);
}

std::string_view Name(ActivationFormat format) { return NameIn(kActivationFormatNames, format); }
Expected<ActivationFormat> ParseActivationFormat(std::string_view name) {
  return Lookup(kActivationFormatNames, "activation format", name);
}

std::string_view Name(Activation activation) { return NameIn(kActivationNames, activation); }
Expected<Activation> ParseActivation(std::string_view name) {
  return Lookup(kActivationNames, "activation", name);
}

}  // namespace sluice
