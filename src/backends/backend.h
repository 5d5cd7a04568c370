// Ways to compute a block, behind one interface.
#ifndef SLUICE_SRC_BACKENDS_BACKEND_H_
#define SLUICE_SRC_BACKENDS_BACKEND_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/matrix_view.h"
#include "src/format/pack.h"

namespace sluice {

struct RunnerOptions {
  std::string_view target;           // of the highway backend; empty: the best
  const ThreadPool* pool = nullptr;  // null: the calling thread only
};

// What one pass over up to MaxPassTokens() tokens works on.
struct Pass {
  MatrixView<const float> x;  // [t, d_model]
  MatrixView<float> y;        // [t, d_model]
  bool add_to_residual = false;
  std::span<std::byte> scratch;  // ScratchBytes(t) or more, 64-byte aligned
};

// One block, prepared by a backend. Passes on different scratch may run at the same time.
class BlockRunner {
 public:
  virtual ~BlockRunner() = default;

  // Tokens that a pass handles at most; longer calls are cut, which changes no result.
  virtual size_t MaxPassTokens() const = 0;
  virtual size_t ScratchBytes(size_t tokens) const = 0;

  // x ─► gate ∥ up ─► act(g) ⊙ u, left in scratch in the form that down takes.
  virtual void GateUp(const Pass& pass) const = 0;
  // down ─► bias ─► y stored, or added to it.
  virtual void Down(const Pass& pass) const = 0;

  // One line for a person: instruction sets or library version, activations.
  virtual std::string Describe() const = 0;
};

struct Backend {
  std::string_view name;
  std::string_view description;
  // The error names what the backend lacks for this block (format, matrix), or why the target
  // cannot be had. The block's memory must outlive the runner.
  Expected<std::unique_ptr<BlockRunner>> (*create)(const BlockView& block,
                                                   const RunnerOptions& options);
};

// highway, xnnpack, reference.
std::span<const Backend> AllBackends();
// The error lists the names.
Expected<const Backend*> FindBackend(std::string_view name);

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_BACKEND_H_
