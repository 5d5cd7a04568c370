#include "quant/analysis/source_report.h"

#include <algorithm>

#include "quant/checkpoint/block_formats.h"

namespace sluice {
namespace {

// Every type that can be read is a float of its own or part of a block with a scale.
bool IsQuantized(const std::string& type) {
  const BlockFormat* format = FindBlockFormat(type);
  return format != nullptr && format->values > 1;
}

}  // namespace

SourceReport DescribeSource(const Checkpoint& checkpoint, const std::vector<LayerInfo>& layers) {
  SourceReport report;
  for (const SourceLayer& layer : checkpoint.layers()) {
    const auto packed = std::ranges::find(layers, layer.layer, &LayerInfo::layer);
    if (packed == layers.end()) continue;
    for (const Matrix m : kMatrices) {
      if (!layer.matrices[m] || !packed->matrices[m]) continue;
      const SourceMatrix& matrix = *layer.matrices[m];
      ++report.types[matrix.type];
      report.quantized += IsQuantized(matrix.type) ? 1 : 0;
      report.bytes += matrix.bytes;
    }
  }
  return report;
}

}  // namespace sluice
