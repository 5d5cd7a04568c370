// What a long quantization has done so far, on disk, so that it can go on after it was killed.
#ifndef SLUICE_QUANT_CLI_PARTIAL_H_
#define SLUICE_QUANT_CLI_PARTIAL_H_

#include <cstddef>
#include <string>

#include "quant/quantizer/fit_block.h"
#include "quant/quantizer/fit_stream.h"
#include "sluice/error.h"

namespace sluice {

// A folder beside the output: layer-N.safetensors for each finished layer, then, replaced as a
// whole, streams.safetensors with the job and the streams after it. Removed when destroyed, so that
// only a process that was killed leaves it.
class PartialResult {
 public:
  // `job` describes all that the result depends on; a folder that was left by another job is
  // refused. Without `resume` a folder that is there is an error, which says how to go on.
  static Expected<PartialResult> Open(const std::string& path, const std::string& job, bool resume);
  PartialResult(PartialResult&& o) noexcept;
  PartialResult& operator=(PartialResult&&) = delete;
  ~PartialResult();

  // The number of layers that are done, counted from layer 0, skipped ones included.
  size_t done() const { return done_; }
  Expected<BlockFit> Load(size_t layer) const;
  Expected<Streams> LoadStreams() const;

  // Layer `layer`, with what it gives, none if it was skipped, and the streams after it.
  Status Save(size_t layer, const BlockFit& fit, const Streams& streams);

 private:
  PartialResult(std::string path, std::string job);
  Status WriteStreams(const Streams& streams) const;
  std::string path_;
  std::string job_;
  size_t done_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_CLI_PARTIAL_H_
