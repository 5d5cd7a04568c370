// A packed model file from the inside, for tools that look at its matrices.
#ifndef SLUICE_SRC_FILE_MODEL_IMPL_H_
#define SLUICE_SRC_FILE_MODEL_IMPL_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sluice/error.h"
#include "sluice/model.h"
#include "src/file/model_description.h"
#include "src/file/safetensors.h"
#include "src/format/pack.h"

namespace sluice {

// Constant once it is open: any number of threads may use it.
class Model::Impl {
 public:
  static Expected<std::unique_ptr<Impl>> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsFile& file() const { return file_; }
  const ModelDescription& description() const { return description_; }

  // The block of the checkpoint's layer `layer`, its pointers into the mapped file.
  Expected<BlockView> Block(size_t layer) const;
  // The layer's rescaling factors, one for each of d_ff neurons; empty if it is not rescaled.
  // Errors: one that is not a positive number, as of a foreign or damaged file.
  Expected<std::vector<float>> Rescale(size_t layer) const;
  // Tells the kernel that this matrix is no longer needed for now, so that a pass over all layers
  // does not hold the whole file in memory.
  void Release(const PackedMatrixView& matrix) const;
  // That it will soon be read whole.
  void WillNeed(const PackedMatrixView& matrix) const;

  Status Verify() const;

 private:
  Impl() = default;
  Status Map();
  Status MapMatrix(size_t layer, Matrix m, bool has_bias, PackedMatrixView& view) const;
  Expected<size_t> IndexOf(size_t layer) const;
  Status VerifyMatrix(size_t index, Matrix m) const;
  Status VerifyRescale(size_t index) const;

  SafetensorsFile file_;
  ModelDescription description_;
  std::vector<BlockView> blocks_;  // by position in description_.layers
};

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_MODEL_IMPL_H_
