// Matrices in double precision.
#ifndef SLUICE_QUANT_ANALYSIS_DOUBLE_MATRIX_H_
#define SLUICE_QUANT_ANALYSIS_DOUBLE_MATRIX_H_

#include <Eigen/Core>

#include "sluice/matrix_view.h"

namespace sluice {

using DoubleMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

MatrixView<const double> View(const DoubleMatrix& matrix);
DoubleMatrix ToDouble(MatrixView<const float> matrix);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_DOUBLE_MATRIX_H_
