#include "quant/analysis/calibration.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <format>
#include <numbers>
#include <random>
#include <string_view>
#include <utility>

#include "src/base/status.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "model.layers.";
constexpr std::string_view kSuffix = ".mlp.input";

bool IsInput(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) ||
      name.size() <= kPrefix.size() + kSuffix.size()) {
    return false;
  }
  const auto number = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  return std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
}

// N(0, 1) by Box and Muller's method, on a generator whose every bit the C++ standard fixes;
// std::normal_distribution is free to differ between libraries.
std::vector<float> NormalValues(size_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  // Uniform in (0, 1).
  const auto uniform = [&] { return (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53; };
  std::vector<float> values(count);
  for (size_t i = 0; i < count; i += 2) {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < count) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return values;
}

}  // namespace

std::string Calibration::TensorName(size_t layer) {
  return std::format("{}{}{}", kPrefix, layer, kSuffix);
}

Expected<Calibration> Calibration::Open(const std::string& path) {
  Calibration calibration;
  calibration.source_ = path;
  SLUICE_ASSIGN(calibration.file_, SafetensorsFile::Open(path));
  bool found = false;
  for (const SafetensorsEntry& entry : calibration.file_->entries()) {
    if (!IsInput(entry.name)) continue;
    found = true;
    if (entry.dtype != "F32" || entry.shape.size() != 2) {
      return Fail(ErrorCode::kInvalidArgument, "{}: {} is {} {}, calibration needs F32 [t, d]",
                  path, entry.name, entry.dtype, ShapeText(entry.shape));
    }
    calibration.tokens_ = std::max<size_t>(calibration.tokens_, entry.shape[0]);
  }
  if (!found) {
    return Fail(ErrorCode::kNotFound, "{}: there is no tensor {}N{}, so this is no calibration",
                path, kPrefix, kSuffix);
  }
  return calibration;
}

Calibration Calibration::Random(size_t tokens, uint64_t seed) {
  Calibration calibration;
  calibration.tokens_ = std::max<size_t>(tokens, 1);
  calibration.seed_ = seed;
  return calibration;
}

Expected<std::optional<std::vector<float>>> Calibration::Inputs(size_t layer,
                                                                size_t d_model) const {
  if (!file_) {
    // The golden ratio's multiples lie far apart whatever the seed.
    return NormalValues(tokens_ * d_model, seed_ + (layer + 1) * 0x9E3779B97F4A7C15u);
  }
  const SafetensorsEntry* entry = file_->Find(TensorName(layer));
  if (entry == nullptr || entry->shape[0] == 0) return std::nullopt;
  if (entry->shape[1] != d_model) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {} is {}, but the block takes {} values a token",
                source_, entry->name, ShapeText(entry->shape), d_model);
  }
  std::vector<float> values(entry->bytes.size() / sizeof(float));
  std::memcpy(values.data(), entry->bytes.data(), entry->bytes.size());
  const auto bad = std::ranges::find_if_not(values, [](float v) { return std::isfinite(v); });
  if (bad != values.end()) {
    const auto index = static_cast<size_t>(bad - values.begin());
    return Fail(ErrorCode::kInvalidArgument, "{}: {} [{}, {}] is {}", source_, entry->name,
                index / d_model, index % d_model, *bad);
  }
  return values;
}

}  // namespace sluice
