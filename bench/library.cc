#include "bench/library.h"

#include <algorithm>
#include <limits>

#include "bench/rivals/rivals.h"
#include "src/base/status.h"

namespace sluice::bench {

std::span<const Library> Rivals() {
  static const std::vector<Library> all = {
      Xnnpack(),
#if defined(SLUICE_BENCH_HAVE_ONEDNN)
      OneDnn(),
#endif
#if defined(SLUICE_BENCH_HAVE_ONNXRUNTIME)
      OnnxRuntime(),
#endif
#if defined(SLUICE_BENCH_HAVE_GGML)
      Ggml(),
#endif
  };
  return all;
}

Status Check(const Library& library, Blocks& blocks, size_t copy, size_t threads,
             MatrixView<const float> x, MatrixView<float> y, const ExactResult& exact) {
  // So that a result which is not written is not taken for one.
  std::fill_n(y.data, y.rows * y.stride, std::numeric_limits<float>::quiet_NaN());
  SLUICE_TRY(blocks.Run(copy, threads, x, y));
  const double error = LargestError(y, exact.y);
  const double excused = library.excused_errors * exact.row_error;
  if (error <= excused) return {};
  return Fail(ErrorCode::kCorrupt,
              "wrong result: relative L2 error {:.3g}, of which {:.3g} would be excused", error,
              excused);
}

}  // namespace sluice::bench
