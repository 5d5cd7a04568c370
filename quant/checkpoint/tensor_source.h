// The tensors of a checkpoint, whatever container they come in.
#ifndef SLUICE_QUANT_CHECKPOINT_TENSOR_SOURCE_H_
#define SLUICE_QUANT_CHECKPOINT_TENSOR_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/checkpoint/block_formats.h"
#include "quant/checkpoint/gguf.h"
#include "quant/checkpoint/locate.h"
#include "sluice/error.h"
#include "src/base/mapped_file.h"
#include "src/file/safetensors.h"

namespace sluice {

struct SourceTensor {
  std::string name;
  std::string type;                     // as the file has it: "BF16", "Q4_K", "F8_E4M3"
  const BlockFormat* format = nullptr;  // null: not a type of block_formats.h
  std::vector<uint64_t> shape;          // outermost first: a matrix is [rows, cols]
  std::span<const std::byte> bytes;     // in the mapped file
  const MappedFile* file = nullptr;

  bool readable() const { return format != nullptr && format->decode != nullptr; }
};

class TensorSource {
 public:
  // Opens every file of `files`. Of shards, exactly the tensors that the index lists are there; one
  // that its shard does not hold is an error.
  static Expected<TensorSource> Open(const CheckpointFiles& files);

  // The file to name in errors: the index, if there is one.
  const std::string& path() const { return path_; }
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  // Null if there is none.
  const SourceTensor* Find(std::string_view name) const;
  // One that is there and can be read; else an error that names it.
  Expected<const SourceTensor*> FindReadable(std::string_view name) const;
  // The metadata of a GGUF file; null for safetensors.
  const Gguf* gguf() const { return gguf_ ? &*gguf_ : nullptr; }

 private:
  Status OpenGguf(const std::string& path);
  Status OpenSafetensors(const CheckpointFiles& files);
  void Add(SourceTensor tensor);

  std::string path_;
  // Neither moves its elements when this object moves, so that pointers to the files hold.
  std::deque<MappedFile> mapped_;
  std::deque<SafetensorsFile> safetensors_;
  std::optional<Gguf> gguf_;
  std::vector<SourceTensor> tensors_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

// Receives consecutive rows as f32: `values` holds count · cols of them, and is gone afterwards.
using RowSink = std::function<void(size_t first_row, std::span<const float> values)>;

// Streams the rows [first, first + count) of the readable tensor `tensor`, in pieces of about a
// megabyte whose pages in the file are given up once they are read. A vector is one row. Errors:
// NaN or Inf (tensor and index named); dimensions that are too large for this machine.
Status ReadRows(const SourceTensor& tensor, size_t first, size_t count, const RowSink& sink);

// All values of a readable vector or matrix. Errors as ReadRows.
Status ReadTensor(const SourceTensor& tensor, std::vector<float>& out);

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_TENSOR_SOURCE_H_
