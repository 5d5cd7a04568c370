// One feed-forward block, ready to run.
#ifndef SLUICE_FFN_H_
#define SLUICE_FFN_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"

namespace sluice {

struct FfnOptions {
  // "highway" (the default, defines the result), "xnnpack" or "reference"; see Backends().
  std::string_view backend = "highway";
  // Forces the highway backend's instruction set; empty: the best for each matrix and batch.
  std::string_view target = {};
  // Shared by any number of blocks; must outlive them. Null: the calling thread only.
  ThreadPool* pool = nullptr;
};

struct BackendInfo {
  std::string_view name;
  std::string description;
};
std::vector<BackendInfo> Backends();

// What Forward does with the block's result.
enum class Output {
  kStore,          // y = FFN(x)
  kAddToResidual,  // y = y + FFN(x): y holds the residual stream
};

// Scratch memory for one Forward at a time. It belongs to no block: one that was planned for a
// model's largest block serves them all, layer after layer, and stays in the caches meanwhile.
class Workspace {
 public:
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;
  ~Workspace();

  size_t max_tokens() const;
  size_t bytes() const;

 private:
  friend class Ffn;
  class Impl;
  explicit Workspace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// y = (act(x·gate + bg) ⊙ (x·up + bu))·down + bd, or y = act(x·up + bu)·down + bd without a gate.
// With the highway and reference backends the result is a pure function of the weights and of each
// token's x: bit for bit the same on every instruction set with FMA, for any number of threads,
// alone or in a batch (the numerics contract of the design document).
class Ffn {
 public:
  Ffn(Ffn&&) noexcept;
  Ffn& operator=(Ffn&&) noexcept;
  ~Ffn();

  size_t d_model() const;
  size_t d_ff() const;

  // Allocates scratch for calls of up to `max_tokens` tokens. Longer calls are an error of Forward.
  Expected<Workspace> Plan(size_t max_tokens) const;

  // x and y are [t, d_model], t >= 0, t <= workspace.max_tokens(); they may be the same memory only
  // if they are the same view (data and stride); columns of one matrix that do not overlap are
  // fine. Allocates nothing. A token whose x or hidden vector holds NaN or ±Inf gets a row of NaN
  // (0x7FC00000); other tokens are not affected. Errors: wrong shapes, x and y that overlap, a
  // workspace that is too small for this block.
  Status Forward(MatrixView<const float> x, MatrixView<float> y, Workspace& workspace,
                 Output output = Output::kStore) const;

  // One line for a person: backend, instruction set, activations.
  std::string Describe() const;

  class Impl;
  explicit Ffn(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_FFN_H_
