// Writing packed model files.
#ifndef SLUICE_SRC_FILE_MODEL_WRITER_H_
#define SLUICE_SRC_FILE_MODEL_WRITER_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sluice/error.h"
#include "sluice/model.h"
#include "src/format/pack.h"

namespace sluice {

// Layers are written as they come, so that one packed layer at a time is in memory. All sizes
// follow from the layers' descriptions, so the header is laid out at the start (its checksums
// filled in at the end) and the file appears under its name only in Finish.
class ModelWriter {
 public:
  // `layers` describes every block to come, ascending; `architecture` is the checkpoint's.
  static Expected<ModelWriter> Create(const std::string& path, const std::string& architecture,
                                      std::vector<LayerInfo> layers);
  ModelWriter(ModelWriter&&) noexcept;
  ~ModelWriter();

  // The next matrix in file order: layer by layer, gate, up, down. Must match its description, in
  // which `method`, unless it is empty, takes the place of the method: that may turn out only when
  // the matrix is quantized, and must not be a longer name.
  Status Add(size_t layer, Matrix matrix, const PackedMatrixView& packed,
             const std::string& method = {});
  // After the matrices of a layer that is described as rescaled: what up's rows were multiplied by
  // and down's columns divided by, one factor of bf16 for each of d_ff neurons.
  Status AddRescale(size_t layer, std::span<const float> factors);
  // Errors if a matrix is missing. After it the file is there, whole.
  Status Finish();

 private:
  class Impl;
  explicit ModelWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_MODEL_WRITER_H_
