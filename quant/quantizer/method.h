// The ways to choose integers and scales.
#ifndef SLUICE_QUANT_QUANTIZER_METHOD_H_
#define SLUICE_QUANT_QUANTIZER_METHOD_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "sluice/error.h"

namespace sluice {

//   rtn   round to nearest; looks at nothing but the weights
//   mse   scales that minimise the rounding error weighted by the inputs' second moments
//   gptq  error-compensated rounding, then scales and integers refined for the layer's output
// mse and gptq need calibration.
enum class Method : uint8_t { kRtn, kMse, kGptq };
inline constexpr std::array<Method, 3> kMethods = {Method::kRtn, Method::kMse, Method::kGptq};

std::string_view Name(Method method);  // "rtn", "mse", "gptq"
Expected<Method> ParseMethod(std::string_view name);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_METHOD_H_
