#include "src/backends/backend.h"

#include <string>

#include "src/backends/highway.h"
#include "src/backends/xnnpack.h"
#include "src/base/status.h"

namespace sluice {
namespace {

constexpr Backend kBackends[] = {
    {"highway", "the library's own kernels for every instruction set; defines the result",
     CreateHighwayRunner},
    {"xnnpack",
     "XNNPACK's fully-connected operators on the same weights, with its own qd8 activations",
     CreateXnnpackRunner},
    {"reference", "the numerics contract in scalar code; slow", CreateReferenceRunner},
};

}  // namespace

std::span<const Backend> AllBackends() { return kBackends; }

Expected<const Backend*> FindBackend(std::string_view name) {
  std::string known;
  for (const Backend& backend : kBackends) {
    if (backend.name == name) return &backend;
    known += (known.empty() ? "" : ", ") + std::string(backend.name);
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown backend \"{}\"; known: {}", name, known);
}

}  // namespace sluice
