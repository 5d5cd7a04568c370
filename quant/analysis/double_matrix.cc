#include "quant/analysis/double_matrix.h"

namespace sluice {
namespace {

using FloatMap =
    Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
               Eigen::OuterStride<>>;

}  // namespace

MatrixView<const double> View(const DoubleMatrix& matrix) {
  return {matrix.data(), static_cast<size_t>(matrix.rows()), static_cast<size_t>(matrix.cols())};
}

DoubleMatrix ToDouble(MatrixView<const float> matrix) {
  return FloatMap(matrix.data, static_cast<Eigen::Index>(matrix.rows),
                  static_cast<Eigen::Index>(matrix.cols),
                  Eigen::OuterStride<>(static_cast<Eigen::Index>(matrix.stride)))
      .cast<double>();
}

}  // namespace sluice
