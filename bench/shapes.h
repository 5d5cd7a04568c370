// The blocks of real models, by name.
#ifndef SLUICE_BENCH_SHAPES_H_
#define SLUICE_BENCH_SHAPES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace sluice::bench {

struct Shape {
  std::string model;  // empty if given as numbers
  size_t d_model = 0;
  size_t d_ff = 0;
  size_t layers = 0;  // of the model; 0 if unknown
  friend bool operator==(const Shape&, const Shape&) = default;
};

// Lines `name d_model d_ff layers`, the last of which may be missing; `#` starts a comment. The
// error names file and line.
Expected<std::vector<Shape>> ReadShapes(const std::string& path);

// `text` is DxM, a file of shapes, the name of one in `folder` (without .txt), or of a model in any
// of those. The error lists what there is.
Expected<std::vector<Shape>> ParseShapes(std::string_view text, const std::string& folder);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_SHAPES_H_
