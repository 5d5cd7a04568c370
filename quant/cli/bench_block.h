// The blocks that `sluice bench` measures, and enough copies of them to miss every cache.
#ifndef SLUICE_QUANT_CLI_BENCH_BLOCK_H_
#define SLUICE_QUANT_CLI_BENCH_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/error.h"
#include "sluice/format.h"
#include "sluice/model.h"
#include "src/format/pack.h"

namespace sluice {

// One block in memory.
struct BenchBlock {
  BlockView view;
  std::string weights;              // "qb4w:32", or the matrices' formats with "/" between them
  std::vector<PackedMatrix> owned;  // what `view` points to, unless that is a mapped file

  uint64_t stored_bytes() const;  // weights and scales, padding included
  // Multiplications and additions for each token, biases and activation not counted.
  uint64_t operations_per_token() const;
};

// A gated SiLU block [d, m] of random weights; what they are makes no difference to the time.
Expected<BenchBlock> RandomBlock(size_t d, size_t m, WeightFormat format,
                                 std::optional<ActivationFormat> activations);
// A layer of a packed file; `model` must outlive it.
Expected<BenchBlock> FileBlock(const Model& model, size_t layer,
                               std::optional<ActivationFormat> activations);

// Copies of a block, one after the other.
class BlockRing {
 public:
  static Expected<BlockRing> Create(const BlockView& block, size_t copies);

  const std::vector<BlockView>& views() const { return views_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::vector<BlockView> views_;
};

// The size of the largest cache of this machine; a guess of 32 MiB where the system does not tell.
uint64_t LastLevelCacheBytes();
// Memory that can be used without swapping.
uint64_t AvailableMemoryBytes();

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_BENCH_BLOCK_H_
