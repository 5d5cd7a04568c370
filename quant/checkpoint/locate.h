// Which files a checkpoint is made of.
#ifndef SLUICE_QUANT_CHECKPOINT_LOCATE_H_
#define SLUICE_QUANT_CHECKPOINT_LOCATE_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/error.h"

namespace sluice {

enum class Container { kGguf, kSafetensors };

struct CheckpointFiles {
  Container container = Container::kSafetensors;
  std::vector<std::string> weights{};        // paths; several only with an index
  std::string index{};                       // the path of the index, or empty
  std::map<std::string, size_t> shard_of{};  // by tensor name: which of `weights` the index says
  std::string config{};                      // config.json or params.json; empty for GGUF
};

// `path`: a .gguf, a folder, a .safetensors or an index file (model.safetensors.index.json).
// `config`: a configuration that does not lie beside the weights. Nothing but an index is read, but
// every file returned was there. Errors list what was looked for; of missing shards, all of them
// and all tensors that they would hold.
Expected<CheckpointFiles> LocateCheckpoint(const std::string& path,
                                           const std::optional<std::string>& config);

}  // namespace sluice

#endif  // SLUICE_QUANT_CHECKPOINT_LOCATE_H_
