// What a packed model file says about itself, in its safetensors metadata. docs/FILE_FORMAT.md is
// the specification.
#ifndef SLUICE_SRC_FILE_MODEL_DESCRIPTION_H_
#define SLUICE_SRC_FILE_MODEL_DESCRIPTION_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sluice/error.h"
#include "sluice/model.h"
#include "src/file/model_planes.h"
#include "src/format/pack.h"

namespace sluice {

using Metadata = std::map<std::string, std::string>;

struct ModelDescription {
  std::string architecture;
  std::vector<LayerInfo> layers;
  // Of every stored plane, by position in `layers`.
  std::vector<PerMatrix<PerPlane<uint64_t>>> checksums;
  // Of the factors of each layer that is rescaled, by position in `layers`.
  std::vector<uint64_t> rescale_checksums;
};

// The metadata of the file that `description` describes, its text padded with spaces to `length`
// bytes. The checksums have a fixed width: two descriptions that differ only in them give equally
// long texts.
Metadata FormatModelMetadata(const ModelDescription& description, size_t length = 0);
// The length of that text.
size_t DescriptionLength(const Metadata& metadata);

// The inverse, for a file of any origin. The result has passed CheckModelDescription. Errors, which
// lack the file's name: a file that is no packed model (kInvalidArgument); a layout, layout
// version, format or activation that this library does not know (kUnsupported); whatever is
// missing, of the wrong type or contradictory (kCorrupt).
Expected<ModelDescription> ParseModelMetadata(const Metadata& metadata);

// True for the metadata of a packed model, be it sound or not.
bool IsModelMetadata(const Metadata& metadata);

// Layers ascending, matrices that fit each other and the activations, tensor names unique. What
// this accepts has sizes that do not overflow.
Status CheckModelDescription(const ModelDescription& description);

// A layer's block without its memory: all pointers null. Errors as of PackedLayout and CheckBlock.
Expected<BlockView> DescribeBlock(const LayerInfo& layer);

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_MODEL_DESCRIPTION_H_
