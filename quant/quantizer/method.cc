#include "quant/quantizer/method.h"

#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {

std::string_view Name(Method method) {
  switch (method) {
    case Method::kRtn:
      return "rtn";
    case Method::kMse:
      return "mse";
    case Method::kGptq:
      return "gptq";
  }
  return "unknown";
}

Expected<Method> ParseMethod(std::string_view name) {
  for (const Method method : kMethods) {
    if (Name(method) == name) return method;
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown method {}; known: rtn, mse, gptq", Quote(name));
}

}  // namespace sluice
