// A packed model file: the feed-forward blocks of a model, quantized, mapped without copying.
#ifndef SLUICE_MODEL_H_
#define SLUICE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"
#include "sluice/ffn.h"
#include "sluice/format.h"

namespace sluice {

// One matrix as the file stores it.
struct MatrixInfo {
  std::string name;  // the checkpoint's tensor name
  WeightFormat format;
  WeightFormat requested;  // what the user asked for; differs from format only after a fallback
  size_t rows = 0;         // out
  size_t cols = 0;         // in
  uint64_t bytes = 0;      // stored bytes: weights and scales, padding included, bias excluded
  std::string bias_name;   // empty: no bias
  // How integers and scales were chosen, "rtn", "mse" or "gptq", and how they should have been;
  // they differ after a fallback. Empty: the file does not say.
  std::string method = {};
  std::string requested_method = {};
  double bits_per_weight() const {
    return 8.0 * static_cast<double>(bytes) /
           (static_cast<double>(rows) * static_cast<double>(cols));
  }
  friend bool operator==(const MatrixInfo&, const MatrixInfo&) = default;
};

// One block as the file describes it.
struct LayerInfo {
  size_t layer = 0;  // the checkpoint's layer number
  size_t d_model = 0;
  size_t d_ff = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;
  ActivationFormat input_activations = ActivationFormat::kFloat;
  ActivationFormat hidden_activations = ActivationFormat::kFloat;
  PerMatrix<std::optional<MatrixInfo>> matrices;  // gate is empty in an ungated block
  // Up's rows and down's columns are the checkpoint's times factors and divided by them, which
  // leaves the block's function as it is; the file has the factors, for those who compare matrices.
  bool rescaled = false;
  friend bool operator==(const LayerInfo&, const LayerInfo&) = default;
};

class Model {
 public:
  // Maps the file and checks header, sizes and versions; reads no weights. Keep the Model for as
  // long as blocks made from it are used.
  static Expected<Model> Open(const std::string& path);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const std::string& path() const;
  const std::string& architecture() const;       // of the checkpoint, e.g. "llama"
  const std::vector<LayerInfo>& layers() const;  // ascending by layer number
  uint64_t file_bytes() const;

  // The block of the checkpoint's layer `layer`. Errors: no such layer; a backend or target that
  // lacks what the block needs, named.
  Expected<Ffn> Layer(size_t layer, const FfnOptions& options = {}) const;

  // Reads everything: checksums of all tensors, value ranges of integers and scales. The error
  // names the first tensor that is wrong.
  Status Verify() const;

  class Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_MODEL_H_
