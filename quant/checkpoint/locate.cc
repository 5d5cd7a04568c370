#include "quant/checkpoint/locate.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "quant/checkpoint/json_file.h"
#include "src/base/mapped_file.h"
#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// In a folder, the first that is there is the checkpoint. Mistral publishes both kinds in one
// folder; they hold the same weights.
constexpr std::array<std::string_view, 4> kFolderEntries = {
    "model.safetensors.index.json",
    "model.safetensors",
    "consolidated.safetensors.index.json",
    "consolidated.safetensors",
};

constexpr std::string_view kConsolidated = "consolidated";

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool IsFolder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool HasGgufMagic(const std::string& path) {
  const Expected<MappedFile> file = MappedFile::Open(path);
  constexpr std::array<char, 4> kMagic = {'G', 'G', 'U', 'F'};
  return file && file->bytes().size() >= kMagic.size() &&
         std::ranges::equal(std::as_bytes(std::span(kMagic)), file->bytes().first(kMagic.size()));
}

// The files directly in `folder` whose names end in `suffix`, sorted.
std::vector<fs::path> FilesEndingIn(const fs::path& folder, std::string_view suffix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    if (it->path().filename().string().ends_with(suffix)) found.push_back(it->path());
  }
  std::ranges::sort(found);
  return found;
}

std::string Listed(const std::vector<fs::path>& paths) {
  std::string list;
  for (const fs::path& path : paths) {
    if (!list.empty()) list += ", ";
    list += path.filename().string();
  }
  return list;
}

// The weights, or the index of them, in a folder.
Expected<fs::path> FindInFolder(const fs::path& folder) {
  for (const std::string_view name : kFolderEntries) {
    if (Exists(folder / name)) return folder / name;
  }
  for (const std::string_view suffix : {".safetensors", ".gguf"}) {
    const std::vector<fs::path> found = FilesEndingIn(folder, suffix);
    if (found.size() == 1) return found.front();
    if (found.size() > 1) {
      return Fail(ErrorCode::kNotFound, "{}: {} {} files and no index of them ({}); name one",
                  folder.string(), found.size(), suffix, Listed(found));
    }
  }
  for (const std::string_view suffix : {".bin", ".pth", ".pt"}) {
    const std::vector<fs::path> found = FilesEndingIn(folder, suffix);
    if (!found.empty()) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: {} is a PyTorch pickle, which is not read; convert it to safetensors",
                  folder.string(), found.front().filename().string());
    }
  }
  std::error_code error;
  if (fs::directory_iterator(folder, error); error) {
    return Fail(ErrorCode::kIo, "{}: cannot read this folder: {}", folder.string(),
                error.message());
  }
  return Fail(ErrorCode::kNotFound,
              "{}: no weights in this folder; looked for model.safetensors, its index, "
              "consolidated.safetensors, and a single .safetensors or .gguf file",
              folder.string());
}

// Weights named as Mistral names its own come with params.json, all others with config.json; a
// folder that has only the other one means that.
Expected<std::string> FindConfig(const fs::path& weights) {
  const fs::path folder = weights.parent_path();
  std::array<fs::path, 2> candidates = {folder / "config.json", folder / "params.json"};
  if (weights.filename().string().starts_with(kConsolidated)) std::ranges::reverse(candidates);
  for (const fs::path& candidate : candidates) {
    if (Exists(candidate)) return candidate.string();
  }
  return Fail(ErrorCode::kNotFound,
              "{}: no configuration: there is neither {} nor {}; give one with --config",
              weights.string(), candidates[0].string(), candidates[1].string());
}

// The shards' tensors, and which shards are not there.
Status CheckShardsExist(const CheckpointFiles& files) {
  std::vector<std::string> affected(files.weights.size());
  for (const auto& [tensor, shard] : files.shard_of) {
    if (!affected[shard].empty()) affected[shard] += ", ";
    affected[shard] += tensor;
  }
  std::string missing;
  size_t count = 0;
  for (size_t i = 0; i < files.weights.size(); ++i) {
    if (Exists(files.weights[i])) continue;
    ++count;
    if (!missing.empty()) missing += "; ";
    missing += std::format("{} (with {})", files.weights[i], affected[i]);
  }
  if (count == 0) return {};
  return Fail(ErrorCode::kNotFound, "{}: {} of {} shards missing: {}", files.index, count,
              files.weights.size(), missing);
}

Status ReadIndex(CheckpointFiles& files) {
  SLUICE_ASSIGN(const Json index, ReadJsonFile(files.index));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return Fail(ErrorCode::kCorrupt, "{}: no \"weight_map\" that names shards", files.index);
  }
  const fs::path folder = fs::path(files.index).parent_path();
  std::map<std::string, size_t> shard_number;
  for (const auto& [tensor, shard] : map->items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    // Shards lie beside their index; a path out of the folder is an attack or a mistake.
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      return Fail(ErrorCode::kCorrupt, "{}: the shard of tensor {} is not a file name: {}",
                  files.index, Quote(tensor), JsonText(shard));
    }
    const auto [entry, added] = shard_number.emplace(name, files.weights.size());
    if (added) files.weights.push_back((folder / name).string());
    files.shard_of.emplace(tensor, entry->second);
  }
  return CheckShardsExist(files);
}

Expected<CheckpointFiles> LocateSafetensors(const fs::path& path,
                                            const std::optional<std::string>& config) {
  CheckpointFiles files;
  if (path.extension() == ".json") {
    files.index = path.string();
    SLUICE_TRY(ReadIndex(files));
  } else {
    files.weights.push_back(path.string());
  }
  if (config) {
    files.config = *config;
  } else {
    SLUICE_ASSIGN(files.config, FindConfig(path));
  }
  return files;
}

}  // namespace

Expected<CheckpointFiles> LocateCheckpoint(const std::string& path,
                                           const std::optional<std::string>& config) {
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "a model's name is empty");
  fs::path weights = path;
  std::error_code error;
  if (!fs::exists(weights, error)) {
    if (error) return Fail(ErrorCode::kIo, "{}: cannot open: {}", path, error.message());
    return Fail(ErrorCode::kNotFound, "{}: there is no such file", path);
  }
  if (IsFolder(weights)) {
    SLUICE_ASSIGN(weights, FindInFolder(weights));
  }
  const std::string name = weights.filename().string();
  if (name.ends_with(".safetensors") || name.ends_with(".json")) {
    return LocateSafetensors(weights, config);
  }
  if (name.ends_with(".gguf") || HasGgufMagic(weights.string())) {
    if (config) {
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: a GGUF file holds its own configuration; --config {} does not apply", path,
                  *config);
    }
    return CheckpointFiles{.container = Container::kGguf, .weights = {weights.string()}};
  }
  return Fail(ErrorCode::kUnsupported,
              "{}: not a checkpoint that can be read: a .gguf file, a .safetensors file, its "
              ".index.json, or a folder",
              path);
}

}  // namespace sluice
