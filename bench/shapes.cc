#include "bench/shapes.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/format/layout.h"

namespace sluice::bench {
namespace {

std::optional<size_t> Size(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value == 0 || value > kMaxK) return std::nullopt;
  return value;
}

std::optional<Shape> Numbers(std::string_view text) {
  const size_t cross = text.find('x');
  if (cross == std::string_view::npos) return std::nullopt;
  const auto d = Size(text.substr(0, cross));
  const auto m = Size(text.substr(cross + 1));
  if (!d || !m) return std::nullopt;
  return Shape{"", *d, *m, 0};
}

std::vector<std::filesystem::path> Files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

Expected<std::vector<Shape>> ReadShapes(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Fail(ErrorCode::kNotFound, "{}: cannot be read", path);
  std::vector<Shape> shapes;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, d_model, d_ff, layers, more;
    if (!(words >> name)) continue;
    const bool complete = static_cast<bool>(words >> d_model >> d_ff);
    const auto d = Size(d_model);
    const auto m = Size(d_ff);
    const auto l = (words >> layers) ? Size(layers) : std::optional<size_t>(0);
    if (!complete || !d || !m || !l || (words >> more)) {
      return Fail(ErrorCode::kCorrupt, "{}:{}: {} is not `name d_model d_ff [layers]`", path,
                  number, Quote(line));
    }
    shapes.push_back({name, *d, *m, *l});
  }
  if (shapes.empty()) return Fail(ErrorCode::kCorrupt, "{}: has no shapes", path);
  return shapes;
}

Expected<std::vector<Shape>> ParseShapes(std::string_view text, const std::string& folder) {
  if (const auto shape = Numbers(text)) return std::vector{*shape};
  std::string known;
  for (const std::filesystem::path& file : Files(folder)) {
    if (file.stem() == text) return ReadShapes(file);
    known += file.stem().string() + ", ";
  }
  for (const std::filesystem::path& file : Files(folder)) {
    SLUICE_ASSIGN(const std::vector<Shape> shapes, ReadShapes(file));
    const auto found = std::ranges::find(shapes, text, &Shape::model);
    if (found != shapes.end()) return std::vector{*found};
  }
  if (std::filesystem::is_regular_file(text)) return ReadShapes(std::string(text));
  return Fail(ErrorCode::kInvalidArgument,
              "{} is not DxM, a file of shapes, a model named in one, or one of {}{}/*.txt",
              Quote(text), known, folder);
}

}  // namespace sluice::bench
