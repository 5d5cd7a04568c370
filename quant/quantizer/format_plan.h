// Which format each matrix of each layer gets: the rules of `sluice quantize`.
#ifndef SLUICE_QUANT_QUANTIZER_FORMAT_PLAN_H_
#define SLUICE_QUANT_QUANTIZER_FORMAT_PLAN_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "sluice/error.h"
#include "sluice/format.h"

namespace sluice {

// Layers first … last, both included.
struct LayerRange {
  size_t first = 0;
  size_t last = 0;

  constexpr bool contains(size_t layer) const { return first <= layer && layer <= last; }
  friend constexpr bool operator==(const LayerRange&, const LayerRange&) = default;
};

// "A-B" or "N", as --layers takes it.
Expected<LayerRange> ParseLayerRange(std::string_view text);

// One --override, LAYERS:MATRIX=FMT. LAYERS is "*", or ranges and numbers separated by commas.
struct FormatOverride {
  std::string text;                // as written, for messages
  std::vector<LayerRange> layers;  // empty: all
  Matrix matrix = Matrix::kDown;
  WeightFormat format;
};
Expected<FormatOverride> ParseFormatOverride(std::string_view text);

// What the user asked for. Later members of this struct win over earlier ones, and of several
// overrides that name the same matrix the last one wins.
struct FormatRequest {
  WeightFormat weights = {WeightType::kInt4, 32};   // --weights
  PerMatrix<std::optional<WeightFormat>> matrices;  // --gate, --up, --down
  std::vector<FormatOverride> overrides;            // --override, in order
  std::optional<LayerRange> layers;                 // --layers; none: all
};

// The formats of one layer, exactly as requested: no matrix is given another one.
struct LayerFormats {
  size_t layer = 0;                 // the checkpoint's number
  PerMatrix<WeightFormat> formats;  // gate means nothing in an ungated block
};

// The layers to quantize, ascending, out of the checkpoint's. Errors: --layers whose ends are not
// layers of the checkpoint; a format for gate where no layer has a gate; an override, or one item
// of its LAYERS, that names no matrix of any layer to quantize.
Expected<std::vector<LayerFormats>> PlanFormats(const FormatRequest& request,
                                                std::span<const SourceLayer> layers);

}  // namespace sluice

#endif  // SLUICE_QUANT_QUANTIZER_FORMAT_PLAN_H_
