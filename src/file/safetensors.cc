#include "src/file/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/file/safetensors_header.h"

namespace sluice {
namespace {

constexpr size_t kLengthBytes = sizeof(uint64_t);

// The length field is little-endian, and so is every machine this library runs on.
static_assert(std::endian::native == std::endian::little);

Expected<std::string_view> HeaderText(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < kLengthBytes) {
    return Fail(ErrorCode::kCorrupt, "{}: the file has {} bytes, a safetensors file at least {}",
                file.path(), bytes.size(), kLengthBytes + 2);
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > bytes.size() - kLengthBytes) {
    return Fail(ErrorCode::kCorrupt, "{}: the header's length is {}, but only {} bytes follow",
                file.path(), length, bytes.size() - kLengthBytes);
  }
  if (length > kMaxSafetensorsHeader) {
    return Fail(ErrorCode::kUnsupported, "{}: the header's length is {}, the format allows {}",
                file.path(), length, kMaxSafetensorsHeader);
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                          static_cast<size_t>(length));
}

// Offsets in order and inside the data, and as long as shape × dtype.
Status CheckEntry(const SafetensorsHeaderEntry& entry, uint64_t data_bytes) {
  const auto& [name, dtype, shape] = entry.tensor;
  if (entry.begin > entry.end) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: data_offsets [{}, {}] are not in order",
                Quote(name), entry.begin, entry.end);
  }
  if (entry.end > data_bytes) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: data_offsets end at {}, but the data at {}",
                Quote(name), entry.end, data_bytes);
  }
  if (DtypeBits(dtype) == 0) return {};
  const Expected<uint64_t> bytes = TensorBytes(dtype, shape);
  if (!bytes) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: {}", Quote(name), bytes.error().message);
  }
  if (*bytes != entry.end - entry.begin) {
    return Fail(ErrorCode::kCorrupt, "tensor {}: {} {} takes {} bytes, but data_offsets span {}",
                Quote(name), dtype, ShapeText(shape), *bytes, entry.end - entry.begin);
  }
  return {};
}

// `entries` are in the order of their offsets: each begins where the one before it ends, and the
// last ends with the data.
Status CheckCoverage(const std::vector<SafetensorsHeaderEntry>& entries, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const SafetensorsHeaderEntry& entry : entries) {
    if (entry.begin != end) {
      return Fail(ErrorCode::kCorrupt,
                  "tensor {} begins at {} of the data, but the one before it ends at {}",
                  Quote(entry.tensor.name), entry.begin, end);
    }
    end = entry.end;
  }
  if (end != data_bytes) {
    return Fail(ErrorCode::kCorrupt, "the tensors end at {} of the data, but the file at {}", end,
                data_bytes);
  }
  return {};
}

Expected<SafetensorsHeaderContent> ReadHeader(std::string_view text, uint64_t data_bytes) {
  SLUICE_ASSIGN(SafetensorsHeaderContent content, ParseSafetensorsHeader(text));
  if (content.entries.empty()) {
    return Fail(ErrorCode::kCorrupt, "the header names no tensor");
  }
  for (const SafetensorsHeaderEntry& entry : content.entries) {
    SLUICE_TRY(CheckEntry(entry, data_bytes));
  }
  std::ranges::stable_sort(content.entries, {}, [](const SafetensorsHeaderEntry& entry) {
    return std::pair(entry.begin, entry.end);
  });
  SLUICE_TRY(CheckCoverage(content.entries, data_bytes));
  return content;
}

}  // namespace

size_t DtypeBits(std::string_view dtype) {
  struct Known {
    std::string_view name;
    size_t bits;
  };
  constexpr Known kKnown[] = {
      {"F32", 32},    {"BF16", 16},       {"F16", 16},        {"U8", 8},      {"I8", 8},
      {"F64", 64},    {"I64", 64},        {"U64", 64},        {"I32", 32},    {"U32", 32},
      {"I16", 16},    {"U16", 16},        {"BOOL", 8},        {"F8_E4M3", 8}, {"F8_E5M2", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"C64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6},
  };
  const auto* found = std::ranges::find(kKnown, dtype, &Known::name);
  return found == std::end(kKnown) ? 0 : found->bits;
}

size_t DtypeBytes(std::string_view dtype) {
  const size_t bits = DtypeBits(dtype);
  return bits % 8 == 0 ? bits / 8 : 0;
}

std::string ShapeText(std::span<const uint64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    if (i == 8) return text + "…]";  // no tensor has that many dimensions
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Expected<uint64_t> TensorBytes(std::string_view dtype, std::span<const uint64_t> shape) {
  const size_t bits = DtypeBits(dtype);
  if (bits == 0) return Fail(ErrorCode::kUnsupported, "unknown dtype {}", Quote(dtype));
  uint64_t total = bits;
  if (std::ranges::find(shape, 0u) != shape.end()) return uint64_t{0};
  for (const uint64_t n : shape) {
    if (__builtin_mul_overflow(total, n, &total)) {
      return Fail(ErrorCode::kCorrupt, "{} {} overflows 64 bits", dtype, ShapeText(shape));
    }
  }
  if (total % 8 != 0) {
    return Fail(ErrorCode::kCorrupt, "{} {} is not a whole number of bytes", dtype,
                ShapeText(shape));
  }
  return total / 8;
}

Expected<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  SafetensorsFile result;
  SLUICE_ASSIGN(result.file_, MappedFile::Open(path));
  SLUICE_ASSIGN(const std::string_view text, HeaderText(result.file_));
  const std::span<const std::byte> data = result.file_.bytes().subspan(kLengthBytes + text.size());
  Expected<SafetensorsHeaderContent> content = ReadHeader(text, data.size());
  if (!content) return FailIn(path, content.error());
  result.metadata_ = std::move(content->metadata);
  result.entries_.reserve(content->entries.size());
  for (SafetensorsHeaderEntry& entry : content->entries) {
    auto& [name, dtype, shape] = entry.tensor;
    result.by_name_.emplace(name, result.entries_.size());
    result.entries_.push_back({std::move(name), std::move(dtype), std::move(shape),
                               data.subspan(entry.begin, entry.end - entry.begin)});
  }
  return result;
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

}  // namespace sluice
