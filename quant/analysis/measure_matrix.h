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
  // Blocks of weights too small for any scale, which became zeros: their number and first row.
  // Begins with the matrix's name.
  std::vector<std::string> warnings;
  // As FindWeightFaults has them; the layer is the caller's.
  std::vector<Finding> findings;
};

// `restored` are the values of `stored` as Restore gives them, which its caller has anyway, with
// the layer's `rescale` factors; none: it is not rescaled. All figures are in units of the
// checkpoint.
MatrixMeasurement MeasureMatrix(Matrix matrix, MatrixView<const float> trained,
                                const QuantizedMatrix& stored, std::span<const float> restored,
                                std::span<const float> rescale = {});

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_MEASURE_MATRIX_H_
