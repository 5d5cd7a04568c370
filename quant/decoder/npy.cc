#include "quant/decoder/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "src/base/quote.h"
#include "src/base/status.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// NumPy's own limit for files that are not trusted, numpy.lib.format's max_header_size.
constexpr size_t kMaxHeader = 10'000;

// The header: a Python dictionary with three keys, in any order, as NumPy prints it.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::string_view text)
      : path_(path), all_(text), rest_(text) {}

  struct Header {
    std::optional<std::string_view> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<uint64_t>> shape;
  };

  Expected<Header> Run() {
    Header header;
    if (!Take("{")) return Wrong();
    while (!Take("}")) {
      const std::optional<std::string_view> key = QuotedText();
      if (!key || !Take(":")) return Wrong();
      if (!Value(*key, header)) return Wrong();
      if (Take(",")) continue;
      if (!Take("}")) return Wrong();
      break;
    }
    SkipSpace();
    if (!rest_.empty() || !header.descr || !header.fortran_order || !header.shape) return Wrong();
    return header;
  }

 private:
  std::unexpected<Error> Wrong() const {
    constexpr size_t kShown = 80;
    return Fail(ErrorCode::kCorrupt,
                "{}: the .npy header is not a dictionary of descr, fortran_order and shape (at its "
                "byte {}): {}",
                path_, all_.size() - rest_.size(), Quote(all_.substr(0, kShown)));
  }

  void SkipSpace() {
    const size_t n = rest_.find_first_not_of(" \n");
    rest_.remove_prefix(std::min(n, rest_.size()));
  }

  bool Take(std::string_view token) {
    SkipSpace();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::optional<std::string_view> QuotedText() {
    if (!Take("'")) return std::nullopt;
    const size_t end = rest_.find('\'');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }

  // Once each.
  bool Value(std::string_view key, Header& header) {
    if (key == "descr" && !header.descr) return (header.descr = QuotedText()).has_value();
    if (key == "shape" && !header.shape) return (header.shape = Shape()).has_value();
    if (key != "fortran_order" || header.fortran_order) return false;
    header.fortran_order = Take("True");
    return *header.fortran_order || Take("False");
  }

  std::optional<std::vector<uint64_t>> Shape() {
    std::vector<uint64_t> shape;
    if (!Take("(")) return std::nullopt;
    while (!Take(")")) {
      uint64_t n = 0;
      SkipSpace();
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
      if (error != std::errc()) return std::nullopt;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      shape.push_back(n);
      if (Take(",")) continue;
      if (!Take(")")) return std::nullopt;
      break;
    }
    return shape;
  }

  const std::string& path_;
  std::string_view all_;
  std::string_view rest_;
};

// The header's text, and where the array begins.
struct Parts {
  std::string_view header;
  size_t data = 0;
};

Expected<Parts> Split(const std::string& path, std::span<const std::byte> bytes) {
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t version_at = kNpyMagic.size();
  if (!file.starts_with(kNpyMagic) || file.size() < version_at + 4) {
    return Fail(ErrorCode::kCorrupt, "{}: not a .npy file, or cut off in its first bytes", path);
  }
  const auto version = static_cast<unsigned char>(file[version_at]);
  if (version < 1 || version > 3) {
    return Fail(ErrorCode::kUnsupported,
                "{}: version {} of the .npy format is not known, only 1 to 3", path, version);
  }
  // Little-endian, like the machine.
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t header_at = version_at + 2 + length_bytes;
  uint32_t length = 0;
  if (file.size() >= header_at) std::memcpy(&length, file.data() + version_at + 2, length_bytes);
  if (file.size() < header_at || length > file.size() - header_at || length > kMaxHeader) {
    return Fail(ErrorCode::kCorrupt,
                "{}: the .npy header is said to have {} bytes, the file has {}{}", path, length,
                file.size(), length > kMaxHeader ? ", and NumPy's limit is 10000" : "");
  }
  return Parts{file.substr(header_at, length), header_at + length};
}

}  // namespace

Expected<NpyArray> ParseNpy(const std::string& path, std::span<const std::byte> bytes) {
  SLUICE_ASSIGN(const Parts parts, Split(path, bytes));
  SLUICE_ASSIGN(const auto header, HeaderParser(path, parts.header).Run());
  NpyArray array;
  array.item_bytes = *header.descr == "<i4" ? 4 : *header.descr == "<i8" ? 8 : 0;
  if (array.item_bytes == 0) {
    return Fail(ErrorCode::kUnsupported,
                "{}: the array is of type {}, not int32 ('<i4') or int64 ('<i8')", path,
                Quote(*header.descr));
  }
  array.shape = *header.shape;
  if (*header.fortran_order && array.shape.size() > 1) {
    return Fail(ErrorCode::kUnsupported, "{}: the array is in Fortran's order; save it in C's",
                path);
  }
  array.bytes = bytes.subspan(parts.data);
  const auto expected = TensorBytes(array.item_bytes == 4 ? "I32" : "I64", array.shape);
  if (!expected || *expected != array.bytes.size()) {
    return Fail(ErrorCode::kCorrupt,
                "{}: an array of shape {} and {} bytes a number in {} bytes of data", path,
                ShapeText(array.shape), array.item_bytes, array.bytes.size());
  }
  return array;
}

}  // namespace sluice
