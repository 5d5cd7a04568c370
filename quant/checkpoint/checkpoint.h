// Real model files, of any supported family and container, as feed-forward blocks in FP32.
#ifndef SLUICE_QUANT_CHECKPOINT_CHECKPOINT_H_
#define SLUICE_QUANT_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quant/checkpoint/ffn_weights.h"
#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

struct ModelConfig;  // config.h
class TensorSource;  // tensor_source.h

// One matrix as the checkpoint stores it.
struct SourceMatrix {
  std::string name;       // the file's tensor name; of a fused tensor, its family's split name
  std::string type;       // "F32", "BF16", "Q4_K", …
  std::string bias_name;  // empty: no bias
  size_t rows = 0;        // out
  size_t cols = 0;        // in
  uint64_t bytes = 0;     // of the weights in the file (a fused tensor's share)
};

struct SourceLayer {
  size_t layer = 0;  // the number in the tensor names
  size_t d_model = 0;
  size_t d_ff = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  PerMatrix<std::optional<SourceMatrix>> matrices;
};

class Checkpoint {
 public:
  // `path`: a .gguf, a folder, a .safetensors or an index file. `config`: a config.json or
  // params.json, if it does not lie beside the file; GGUF needs none. Only the feed-forward tensors
  // need be present.
  static Expected<Checkpoint> Open(const std::string& path,
                                   const std::optional<std::string>& config);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::string& path() const;
  const ModelConfig& config() const;
  const TensorSource& source() const;              // every tensor of the files
  const std::string& architecture() const;         // "llama", "gemma3", "bert", …
  const std::vector<SourceLayer>& layers() const;  // ascending by layer number; at least one
  // What is odd but no error, one line each: layers that the configuration counts and that no
  // tensor belongs to.
  const std::vector<std::string>& warnings() const;

  // Values are converted here and nowhere kept: peak memory is what the caller holds. Errors: NaN
  // or Inf among the weights (tensor and index named).
  Expected<LinearWeights> Load(size_t layer, Matrix matrix) const;
  Expected<FfnWeights> Load(size_t layer) const;

  class Impl;

 private:
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_CHECKPOINT_H_
