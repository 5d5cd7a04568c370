// The JSON header of a safetensors file, read without trust.
#ifndef SLUICE_SRC_FILE_SAFETENSORS_HEADER_H_
#define SLUICE_SRC_FILE_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"
#include "src/file/safetensors.h"

namespace sluice {

struct SafetensorsHeaderEntry {
  SafetensorsTensor tensor;
  uint64_t begin = 0;  // relative to the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeaderContent {
  std::vector<SafetensorsHeaderEntry> entries;  // as the header has them
  std::map<std::string, std::string> metadata;
};

// Checks the header's form: JSON with nothing after it but white space, each tensor with one dtype,
// shape and data_offsets of the right types, no name twice, metadata of strings. Unknown fields of
// a tensor are skipped, as the reference implementation does. The errors lack the file's name.
Expected<SafetensorsHeaderContent> ParseSafetensorsHeader(std::string_view json);

}  // namespace sluice

#endif  // SLUICE_SRC_FILE_SAFETENSORS_HEADER_H_
