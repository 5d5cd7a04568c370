#include "src/format/layout.h"

#include <utility>

#include "src/base/status.h"

namespace sluice {
namespace {

constexpr uint64_t kLargestBlock = 128;

}  // namespace

Expected<PackedLayout> PackedLayout::Create(WeightFormat format, size_t rows, size_t cols) {
  if (rows == 0 || cols == 0) {
    return Fail(ErrorCode::kInvalidArgument, "the matrix is empty: [{}, {}]", rows, cols);
  }
  if (cols > kMaxK) {
    return Fail(ErrorCode::kUnsupported,
                "the matrix is [{}, {}], but at most {} columns keep integer sums exact", rows,
                cols, kMaxK);
  }
  const uint64_t wide_rows = rows;  // size_t may have 32 bits
  if (wide_rows > kMaxRows) {
    return Fail(ErrorCode::kUnsupported,
                "the matrix is [{}, {}], but at most {} rows are supported", rows, cols, kMaxRows);
  }
  // As f32 with the largest padding, more than any plane takes.
  const uint64_t bytes =
      (wide_rows + kStripRows) * (uint64_t{cols} + kLargestBlock) * sizeof(float);
  if (!std::in_range<ptrdiff_t>(bytes)) {
    return Fail(ErrorCode::kUnsupported, "the matrix is [{}, {}], too large for this machine", rows,
                cols);
  }
  PackedLayout layout;
  layout.format = format;
  layout.rows = rows;
  layout.cols = cols;
  return layout;
}

}  // namespace sluice
