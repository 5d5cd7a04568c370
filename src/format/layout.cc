#include "src/format/layout.h"

#include "src/base/status.h"

namespace sluice {

Expected<PackedLayout> PackedLayout::Create(WeightFormat format, size_t rows, size_t cols) {
  if (rows == 0 || cols == 0) {
    return Fail(ErrorCode::kInvalidArgument, "the matrix is empty: [{}, {}]", rows, cols);
  }
  if (cols > kMaxK) {
    return Fail(ErrorCode::kUnsupported,
                "the matrix is [{}, {}], but at most {} columns keep integer sums exact", rows,
                cols, kMaxK);
  }
  if (rows > kMaxRows) {
    return Fail(ErrorCode::kUnsupported,
                "the matrix is [{}, {}], but at most {} rows are supported", rows, cols, kMaxRows);
  }
  PackedLayout layout;
  layout.format = format;
  layout.rows = rows;
  layout.cols = cols;
  return layout;
}

}  // namespace sluice
