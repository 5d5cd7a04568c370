#include "quant/decoder/norm.h"

#include <Eigen/Core>
#include <cmath>
#include <cstddef>

#include "src/base/thread_pool.h"

namespace sluice {
namespace {

constexpr size_t kTaskRows = 64;

}  // namespace

float RmsNorm::Factor(std::span<const float> x) const {
  const auto n = static_cast<Eigen::Index>(x.size());
  const Eigen::Map<const Eigen::ArrayXf> in(x.data(), n);
  const double mean = in.cast<double>().square().sum() / static_cast<double>(n);
  return static_cast<float>(1 / std::sqrt(mean + eps));
}

void RmsNorm::Apply(std::span<const float> x, std::span<float> out) const {
  const auto n = static_cast<Eigen::Index>(x.size());
  Eigen::Map<Eigen::ArrayXf>(out.data(), n) = Eigen::Map<const Eigen::ArrayXf>(x.data(), n) *
                                              Factor(x) *
                                              Eigen::Map<const Eigen::ArrayXf>(weights.data(), n);
}

void RmsNorm::Apply(MatrixView<const float> x, MatrixView<float> out,
                    const ThreadPool* pool) const {
  ParallelFor(pool, x.rows, kTaskRows, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) Apply(x.row(r), out.row(r));
  });
}

void AddToStream(const RmsNorm* norm, MatrixView<float> y, MatrixView<float> stream,
                 const ThreadPool* pool) {
  ParallelFor(pool, y.rows, kTaskRows, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      if (norm != nullptr) norm->Apply(y.row(r), y.row(r));
      for (size_t c = 0; c < y.cols; ++c) stream.row(r)[c] += y.row(r)[c];
    }
  });
}

}  // namespace sluice
