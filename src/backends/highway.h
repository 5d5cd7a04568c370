// The default backend: the library's own kernels. And the same passes over scalar kernels, which is
// the reference backend.
#ifndef SLUICE_SRC_BACKENDS_HIGHWAY_H_
#define SLUICE_SRC_BACKENDS_HIGHWAY_H_

#include <memory>

#include "src/backends/backend.h"

namespace sluice {

Expected<std::unique_ptr<BlockRunner>> CreateHighwayRunner(const BlockView& block,
                                                           const RunnerOptions& options);
Expected<std::unique_ptr<BlockRunner>> CreateReferenceRunner(const BlockView& block,
                                                             const RunnerOptions& options);

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_HIGHWAY_H_
