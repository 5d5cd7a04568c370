// How the weights of one matrix fared.
#ifndef SLUICE_QUANT_ANALYSIS_MEASURE_MATRIX_H_
#define SLUICE_QUANT_ANALYSIS_MEASURE_MATRIX_H_

#include <span>
#include <string>
#include <vector>

#include "quant/analysis/block_report.h"
#include "sluice/format.h"
#include "sluice/matrix_view.h"
#include "src/format/quantized_matrix.h"

namespace sluice {

struct MatrixMeasurement {
  // Its requested format is the stored one, and its bits per weight are 0: the file's description
  // knows them.
  MatrixReport report;
  // A matrix that is all zero in the checkpoint; blocks of weights that became zeros, with their
  // number and first row. Each begins with the matrix's name.
  std::vector<std::string> warnings;
};

// `dequantized` are the values of `stored`, in whose place its caller has them anyway.
MatrixMeasurement MeasureMatrix(Matrix matrix, MatrixView<const float> trained,
                                const QuantizedMatrix& stored, std::span<const float> dequantized);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_MEASURE_MATRIX_H_
