#include "quant/decoder/tokens.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "quant/decoder/npy.h"
#include "src/base/mapped_file.h"
#include "src/base/status.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

constexpr size_t kBytes = 256;  // the vocabulary of a byte-level model
constexpr size_t kMaxTokens = std::numeric_limits<int32_t>::max();

void CutText(size_t length, size_t context, std::vector<size_t>& windows) {
  for (size_t done = 0; done < length; done += context) {
    windows.push_back(std::min(context, length - done));
  }
}

// Number `i` of an array of integers of `size` bytes.
int64_t IntegerAt(std::span<const std::byte> bytes, size_t size, size_t i) {
  int32_t narrow = 0;
  int64_t wide = 0;
  if (size == sizeof(wide)) {
    std::memcpy(&wide, bytes.data() + i * size, size);
    return wide;
  }
  std::memcpy(&narrow, bytes.data() + i * size, size);
  return narrow;
}

Expected<Tokens> FromArray(const std::string& path, const NpyArray& array, size_t context,
                           size_t vocabulary) {
  const size_t count = array.bytes.size() / array.item_bytes;
  if (array.shape.empty() || array.shape.size() > 2 || count == 0 || count > kMaxTokens) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "{}: the tokens have the shape {}; needed is [n] or [texts, length], 1 to {} tokens", path,
        ShapeText(array.shape), kMaxTokens);
  }
  Tokens tokens{.source = path, .ids = {}, .windows = {}};
  tokens.ids.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t id = IntegerAt(array.bytes, array.item_bytes, i);
    if (id < 0 || std::cmp_greater_equal(id, vocabulary)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "{}: token {} is {}, but the model's vocabulary has the ids 0 to {}", path, i, id,
                  vocabulary - 1);
    }
    tokens.ids.push_back(static_cast<int32_t>(id));
  }
  const auto length = static_cast<size_t>(array.shape.back());
  for (size_t done = 0; done < count; done += length) CutText(length, context, tokens.windows);
  return tokens;
}

Expected<NpyArray> FromSafetensors(const std::string& path, const SafetensorsFile& file) {
  constexpr std::string_view kName = "tokens";
  const SafetensorsEntry* entry = file.Find(kName);
  if (entry == nullptr) {
    return Fail(ErrorCode::kNotFound, "{}: there is no tensor {}", path, kName);
  }
  if (entry->dtype != "I32" && entry->dtype != "I64") {
    return Fail(ErrorCode::kInvalidArgument, "{}: {} is {}, not I32 or I64", path, kName,
                entry->dtype);
  }
  return NpyArray{DtypeBytes(entry->dtype), entry->shape, entry->bytes};
}

bool IsNpy(const MappedFile& file) {
  return file.bytes().size() >= kNpyMagic.size() &&
         std::memcmp(file.bytes().data(), kNpyMagic.data(), kNpyMagic.size()) == 0;
}

}  // namespace

size_t Tokens::longest_window() const { return windows.empty() ? 0 : std::ranges::max(windows); }

std::vector<TokenGroup> GroupWindows(const Tokens& tokens, size_t most) {
  std::vector<TokenGroup> groups;
  const std::span<const size_t> windows(tokens.windows);
  size_t token = 0;
  for (size_t first = 0; first < windows.size();) {
    size_t count = 1;
    size_t length = windows[first];
    while (first + count < windows.size() && length + windows[first + count] <= most) {
      length += windows[first + count++];
    }
    groups.push_back(
        {token, std::span(tokens.ids).subspan(token, length), windows.subspan(first, count)});
    token += length;
    first += count;
  }
  return groups;
}

Expected<Tokens> ReadTokens(const std::string& path, size_t context, size_t vocabulary) {
  SLUICE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  if (IsNpy(file)) {
    SLUICE_ASSIGN(const NpyArray array, ParseNpy(path, file.bytes()));
    return FromArray(path, array, context, vocabulary);
  }
  const auto tensors = SafetensorsFile::Open(path);
  if (!tensors) {
    return Fail(tensors.error().code, "{} (tokens come as .npy or safetensors)",
                tensors.error().message);
  }
  SLUICE_ASSIGN(const NpyArray array, FromSafetensors(path, *tensors));
  return FromArray(path, array, context, vocabulary);
}

Expected<Tokens> ReadText(const std::string& path, size_t context, size_t vocabulary) {
  if (vocabulary != kBytes) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "{}: text is for models whose tokens are bytes; this one has a vocabulary of {}, so "
        "make ids of the text first: quant/tools/text_to_tokens.py",
        path, vocabulary);
  }
  SLUICE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kMaxTokens) {
    return Fail(ErrorCode::kInvalidArgument, "{}: {} bytes are more than {} tokens", path,
                file.bytes().size(), kMaxTokens);
  }
  Tokens tokens{.source = path, .ids = {}, .windows = {}};
  tokens.ids.reserve(file.bytes().size());
  for (const std::byte b : file.bytes()) tokens.ids.push_back(std::to_integer<int32_t>(b));
  CutText(tokens.ids.size(), context, tokens.windows);
  return tokens;
}

}  // namespace sluice
