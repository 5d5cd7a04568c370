#include "quant/checkpoint/tensor_source.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// What one call of a RowSink receives: small beside a matrix, large beside a page.
constexpr size_t kPieceValues = size_t{1} << 18;

constexpr uint32_t kInfinity = 0x7F800000u;

// The position of the first NaN or infinity; values.size() if there is none. The first loop has no
// exit, so that the compiler makes vector code of it: nearly every tensor passes.
size_t FirstNonFinite(std::span<const float> values) {
  uint32_t found = 0;
  for (const float v : values) {
    found |= (std::bit_cast<uint32_t>(v) & kInfinity) == kInfinity ? 1u : 0u;
  }
  if (found == 0) return values.size();
  const auto finite = [](float v) { return (std::bit_cast<uint32_t>(v) & kInfinity) != kInfinity; };
  return static_cast<size_t>(std::ranges::find_if_not(values, finite) - values.begin());
}

// "[3, 17]": where value `i` of row `row` lies in the tensor as the file shapes it.
std::string IndexText(const SourceTensor& tensor, size_t row, size_t i) {
  return tensor.shape.size() < 2 ? std::format("[{}]", i) : std::format("[{}, {}]", row, i);
}

}  // namespace

Status ReadRows(const SourceTensor& tensor, size_t first, size_t count, const RowSink& sink) {
  const BlockFormat& format = *tensor.format;
  const uint64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (cols > std::numeric_limits<ptrdiff_t>::max() / sizeof(float)) {
    return Fail(ErrorCode::kUnsupported, "{}: tensor {}: rows of {} values are too long here",
                tensor.file->path(), Quote(tensor.name), cols);
  }
  const size_t row_values = static_cast<size_t>(cols);
  const size_t row_blocks = row_values / format.values;
  const size_t row_bytes = row_blocks * format.bytes;
  const size_t piece_rows = std::min(count, std::max<size_t>(1, kPieceValues / row_values));
  std::vector<float> values(piece_rows * row_values);
  for (size_t done = 0; done < count;) {
    const size_t rows = std::min(piece_rows, count - done);
    const size_t row = first + done;
    const std::span<float> piece = std::span(values).first(rows * row_values);
    format.decode(tensor.bytes.data() + row * row_bytes, rows * row_blocks, piece.data());
    const size_t bad = FirstNonFinite(piece);
    if (bad != piece.size()) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} is {} at {}", tensor.file->path(),
                  Quote(tensor.name), piece[bad], IndexText(tensor, row + bad / cols, bad % cols));
    }
    sink(row, piece);
    done += rows;
    // All that was read so far, not just this piece, or the page at each seam would stay.
    tensor.file->Release(tensor.bytes.subspan(first * row_bytes, done * row_bytes));
  }
  return {};
}

Status ReadTensor(const SourceTensor& tensor, std::vector<float>& out) {
  const size_t rows = tensor.shape.size() < 2 ? 1 : static_cast<size_t>(tensor.shape.front());
  out.clear();
  return ReadRows(tensor, 0, rows, [&](size_t, std::span<const float> values) {
    out.reserve(rows * (values.size() / std::max<size_t>(1, tensor.shape.back())));
    out.insert(out.end(), values.begin(), values.end());
  });
}

Expected<TensorSource> TensorSource::Open(const CheckpointFiles& files) {
  TensorSource source;
  source.path_ = files.index.empty() ? files.weights.front() : files.index;
  if (files.container == Container::kGguf) {
    SLUICE_TRY(source.OpenGguf(files.weights.front()));
  } else {
    SLUICE_TRY(source.OpenSafetensors(files));
  }
  return source;
}

const SourceTensor* TensorSource::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

Expected<const SourceTensor*> TensorSource::FindReadable(std::string_view name) const {
  const SourceTensor* tensor = Find(name);
  if (tensor == nullptr) {
    return Fail(ErrorCode::kNotFound, "{}: tensor {} is missing", path(), Quote(name));
  }
  if (tensor->readable()) return tensor;
  return Fail(ErrorCode::kUnsupported,
              "{}: tensor {} has type {}, which is not supported; known: {}", tensor->file->path(),
              Quote(name), Quote(tensor->type),
              gguf() != nullptr ? ReadableBlockFormats() : "F32, F16, BF16");
}

void TensorSource::Add(SourceTensor tensor) {
  by_name_.emplace(tensor.name, tensors_.size());
  tensors_.push_back(std::move(tensor));
}

Status TensorSource::OpenGguf(const std::string& path) {
  SLUICE_ASSIGN(MappedFile mapped, MappedFile::Open(path));
  const MappedFile& file = mapped_.emplace_back(std::move(mapped));
  SLUICE_ASSIGN(gguf_, Gguf::Parse(path, file.bytes()));
  for (const GgufTensor& tensor : gguf_->tensors()) {
    Add({tensor.name, std::string(tensor.format->name), tensor.format, tensor.shape, tensor.bytes,
         &file});
  }
  file.Release(file.bytes());  // the tokenizer, which nobody will look at again
  return {};
}

Status TensorSource::OpenSafetensors(const CheckpointFiles& files) {
  for (const std::string& path : files.weights) {
    SLUICE_ASSIGN(SafetensorsFile opened, SafetensorsFile::Open(path));
    safetensors_.push_back(std::move(opened));
  }
  const auto add = [this](const SafetensorsEntry& entry, const SafetensorsFile& file) {
    // The container has checked the size of the types that it knows, and of no others.
    const bool sized = DtypeBytes(entry.dtype) != 0;
    Add({entry.name, entry.dtype, sized ? FindBlockFormat(entry.dtype) : nullptr, entry.shape,
         entry.bytes, &file.file()});
  };
  if (files.index.empty()) {
    for (const SafetensorsEntry& entry : safetensors_.front().entries()) {
      add(entry, safetensors_.front());
    }
    return {};
  }
  for (const auto& [name, shard] : files.shard_of) {
    const SafetensorsFile& file = safetensors_[shard];
    const SafetensorsEntry* entry = file.Find(name);
    if (entry == nullptr) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} is said to be in {}, which does not hold it",
                  files.index, Quote(name), file.path());
    }
    add(*entry, file);
  }
  return {};
}

}  // namespace sluice
