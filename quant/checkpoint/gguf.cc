#include "quant/checkpoint/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint32_t kDefaultAlignment = 32;

// The least that one of them takes, which bounds how many a file can hold.
constexpr uint64_t kMinValueBytes = 8 + 1 + 4 + 1;  // length, key, type, value
constexpr uint64_t kMinTensorBytes =
    8 + 1 + 4 + 8 + 4 + 8;  // length, name, rank, dim, type, offset

// Bytes of a value of fixed size; 0 for strings and arrays.
uint64_t FixedBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

// Reads forward through the file. Nothing is read before it is known to be there.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }

  // The next `count` bytes; `what` they are is for the error.
  Expected<std::span<const std::byte>> Take(uint64_t count, std::string_view what) {
    if (count > remaining()) {
      return Fail(ErrorCode::kCorrupt,
                  "{}: {} at offset {} takes {} bytes, but the file ends at {}", path_, what,
                  offset_, count, bytes_.size());
    }
    const auto taken = bytes_.subspan(static_cast<size_t>(offset_), static_cast<size_t>(count));
    offset_ += count;
    return taken;
  }

  template <class T>
  Expected<T> Read(std::string_view what) {
    SLUICE_ASSIGN(const auto bytes, Take(sizeof(T), what));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  Expected<std::string_view> ReadString(std::string_view what) {
    SLUICE_ASSIGN(const uint64_t length, Read<uint64_t>(what));
    SLUICE_ASSIGN(const auto bytes, Take(length, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  // A name: a string with a limit, not empty, without the NUL at which C readers would stop.
  Expected<std::string_view> ReadName(std::string_view what, uint64_t limit) {
    const uint64_t start = offset_;
    SLUICE_ASSIGN(const std::string_view name, ReadString(what));
    if (name.empty()) {
      return Fail(ErrorCode::kCorrupt, "{}: {} at offset {} is empty", path_, what, start);
    }
    if (name.size() > limit) {
      return Fail(ErrorCode::kCorrupt, "{}: {} at offset {} has {} bytes, the format allows {}",
                  path_, what, start, name.size(), limit);
    }
    if (name.find('\0') != std::string_view::npos) {
      return Fail(ErrorCode::kCorrupt, "{}: {} {} at offset {} contains a NUL", path_, what,
                  Quote(name), start);
    }
    return name;
  }

  Expected<GgufType> ReadType(std::string_view what) {
    const uint64_t start = offset_;
    SLUICE_ASSIGN(const uint32_t number, Read<uint32_t>(what));
    if (number > static_cast<uint32_t>(GgufType::kFloat64)) {
      return Fail(ErrorCode::kCorrupt, "{}: {} at offset {} is {}, the format has 0 to {}", path_,
                  what, start, number, static_cast<uint32_t>(GgufType::kFloat64));
    }
    return static_cast<GgufType>(number);
  }

 private:
  const std::string& path_;
  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

// What a tensor's header says, before it is checked against the data.
struct TensorInfo {
  std::string_view name;
  const BlockFormat* format = nullptr;
  std::vector<uint64_t> dimensions;  // innermost first
  uint64_t offset = 0;               // from the start of the data
  uint64_t bytes = 0;
};

bool Multiply(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

}  // namespace

class GgufParser {
 public:
  GgufParser(const std::string& path, std::span<const std::byte> bytes)
      : path_(path), bytes_(bytes), cursor_(path, bytes) {
    gguf_.path_ = path;
  }

  Expected<Gguf> Run() {
    SLUICE_TRY(ReadVersion());
    SLUICE_ASSIGN(const uint64_t tensors, ReadCount("the number of tensors", kMinTensorBytes));
    SLUICE_ASSIGN(const uint64_t values,
                  ReadCount("the number of metadata values", kMinValueBytes));
    for (uint64_t i = 0; i < values; ++i) SLUICE_TRY(ReadValue());
    for (uint64_t i = 0; i < tensors; ++i) SLUICE_TRY(ReadTensor());
    SLUICE_TRY(PlaceTensors());
    return std::move(gguf_);
  }

 private:
  Status ReadVersion() {
    SLUICE_ASSIGN(const auto magic, cursor_.Take(kGgufMagic.size(), "the magic number"));
    if (std::memcmp(magic.data(), kGgufMagic.data(), kGgufMagic.size()) != 0) {
      return Fail(ErrorCode::kCorrupt, "{}: not a GGUF file: it does not begin with \"{}\"", path_,
                  kGgufMagic);
    }
    SLUICE_ASSIGN(const uint32_t version, cursor_.Read<uint32_t>("the version"));
    if (version == 2 || version == 3) return {};
    if ((version & 0xFFFF) == 0 && version != 0) {
      return Fail(ErrorCode::kUnsupported, "{}: big-endian GGUF (version {}) is not supported",
                  path_, std::byteswap(version));
    }
    return Fail(ErrorCode::kUnsupported, "{}: GGUF version {} is not supported, only 2 and 3",
                path_, version);
  }

  // A count of things of at least `least` bytes each; as many must fit in the rest of the file.
  Expected<uint64_t> ReadCount(std::string_view what, uint64_t least) {
    const uint64_t start = cursor_.offset();
    SLUICE_ASSIGN(const uint64_t count, cursor_.Read<uint64_t>(what));
    if (count > cursor_.remaining() / least) {
      return Fail(ErrorCode::kCorrupt,
                  "{}: {} at offset {} is {}, but the {} bytes that follow hold at most {}", path_,
                  what, start, count, cursor_.remaining(), cursor_.remaining() / least);
    }
    return count;
  }

  Status ReadValue() {
    const uint64_t start = cursor_.offset();
    SLUICE_ASSIGN(const std::string_view key, cursor_.ReadName("a metadata key", kMaxKeyBytes));
    GgufValue value;
    SLUICE_ASSIGN(value.type, cursor_.ReadType("a metadata type"));
    if (value.type == GgufType::kString) {
      SLUICE_ASSIGN(const std::string_view text, cursor_.ReadString("a metadata string"));
      value.bytes = std::as_bytes(std::span(text));
    } else if (value.type == GgufType::kArray) {
      SLUICE_TRY(ReadArray(key, value));
    } else {
      SLUICE_ASSIGN(value.bytes, cursor_.Take(FixedBytes(value.type), "a metadata value"));
    }
    if (!gguf_.metadata_.emplace(key, value).second) {
      return Fail(ErrorCode::kCorrupt, "{}: the metadata key {} at offset {} occurs twice", path_,
                  Quote(key), start);
    }
    return {};
  }

  Status ReadArray(std::string_view key, GgufValue& value) {
    const uint64_t start = cursor_.offset();
    value.array = true;
    SLUICE_ASSIGN(value.type, cursor_.ReadType("an array's element type"));
    if (value.type == GgufType::kArray) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: the metadata value {} at offset {} is an array of arrays", path_, Quote(key),
                  start);
    }
    const uint64_t size = FixedBytes(value.type);
    // A string takes at least its length.
    const uint64_t least = size == 0 ? sizeof(uint64_t) : size;
    SLUICE_ASSIGN(value.count, ReadCount("an array's length", least));
    const uint64_t begin = cursor_.offset();
    if (size != 0) {
      SLUICE_TRY(cursor_.Take(value.count * size, "an array"));
    } else {
      for (uint64_t i = 0; i < value.count; ++i)
        SLUICE_TRY(cursor_.ReadString("an array's string"));
    }
    value.bytes =
        bytes_.subspan(static_cast<size_t>(begin), static_cast<size_t>(cursor_.offset() - begin));
    return {};
  }

  Status ReadTensor() {
    TensorInfo info;
    const uint64_t start = cursor_.offset();
    SLUICE_ASSIGN(info.name, cursor_.ReadName("a tensor's name", kMaxTensorNameBytes));
    if (!names_.insert(info.name).second) {
      return Fail(ErrorCode::kCorrupt, "{}: the tensor {} at offset {} occurs twice", path_,
                  Quote(info.name), start);
    }
    SLUICE_TRY(ReadDimensions(info));
    const uint64_t type_offset = cursor_.offset();
    SLUICE_ASSIGN(const uint32_t type, cursor_.Read<uint32_t>("a tensor's type"));
    info.format = FindGgmlType(type);
    if (info.format == nullptr) {
      return Fail(ErrorCode::kUnsupported, "{}: tensor {} has the unknown type {} (offset {})",
                  path_, Quote(info.name), type, type_offset);
    }
    SLUICE_ASSIGN(info.offset, cursor_.Read<uint64_t>("a tensor's offset"));
    SLUICE_TRY(ComputeBytes(info, start));
    infos_.push_back(std::move(info));
    return {};
  }

  Status ReadDimensions(TensorInfo& info) {
    const uint64_t start = cursor_.offset();
    SLUICE_ASSIGN(const uint32_t rank, cursor_.Read<uint32_t>("a tensor's number of dimensions"));
    if (rank == 0 || rank > kMaxDimensions) {
      return Fail(ErrorCode::kCorrupt, "{}: tensor {} has {} dimensions (offset {}), not 1 to {}",
                  path_, Quote(info.name), rank, start, kMaxDimensions);
    }
    for (uint32_t i = 0; i < rank; ++i) {
      const uint64_t at = cursor_.offset();
      SLUICE_ASSIGN(const uint64_t n, cursor_.Read<uint64_t>("a tensor's dimension"));
      if (n == 0) {
        return Fail(ErrorCode::kCorrupt, "{}: dimension {} of tensor {} is 0 (offset {})", path_, i,
                    Quote(info.name), at);
      }
      info.dimensions.push_back(n);
    }
    return {};
  }

  Status ComputeBytes(TensorInfo& info, uint64_t start) {
    const BlockFormat& format = *info.format;
    const uint64_t row = info.dimensions[0];
    if (row % format.values != 0) {
      return Fail(ErrorCode::kCorrupt,
                  "{}: tensor {} (offset {}) has rows of {} values, but {} comes in blocks of {}",
                  path_, Quote(info.name), start, row, format.name, format.values);
    }
    bool fits = Multiply(row / format.values, format.bytes, &info.bytes);
    // The number of values must fit as well, or a product of dimensions taken later would wrap.
    uint64_t values = row;
    for (size_t i = 1; i < info.dimensions.size(); ++i) {
      fits = fits && Multiply(info.bytes, info.dimensions[i], &info.bytes) &&
             Multiply(values, info.dimensions[i], &values);
    }
    if (!fits) {
      return Fail(ErrorCode::kCorrupt,
                  "{}: the dimensions of tensor {} (offset {}) multiply to more than 64 bits",
                  path_, Quote(info.name), start);
    }
    return {};
  }

  Expected<uint32_t> Alignment() const {
    const GgufValue* value = gguf_.Find("general.alignment");
    if (value == nullptr) return kDefaultAlignment;
    if (value->array || value->type != GgufType::kUint32) {
      return Fail(ErrorCode::kCorrupt, "{}: general.alignment is not a 32-bit unsigned number",
                  path_);
    }
    uint32_t alignment = 0;
    std::memcpy(&alignment, value->bytes.data(), sizeof(alignment));
    if (!std::has_single_bit(alignment)) {
      return Fail(ErrorCode::kCorrupt, "{}: general.alignment is {}, not a power of two", path_,
                  alignment);
    }
    return alignment;
  }

  // Gives every tensor its bytes: inside the file, aligned, apart from each other.
  Status PlaceTensors() {
    SLUICE_ASSIGN(const uint64_t alignment, Alignment());
    const uint64_t header = cursor_.offset();  // at most the file's size, so this cannot wrap
    const uint64_t data = (header + alignment - 1) / alignment * alignment;
    const uint64_t available = data < bytes_.size() ? bytes_.size() - data : 0;
    for (const TensorInfo& info : infos_) {
      if (info.offset % alignment != 0) {
        return Fail(ErrorCode::kCorrupt, "{}: tensor {} lies at {}, not a multiple of {}", path_,
                    Quote(info.name), info.offset, alignment);
      }
      if (info.offset > available || info.bytes > available - info.offset) {
        return Fail(ErrorCode::kCorrupt,
                    "{}: tensor {} takes {} bytes from offset {} of the data, which begins at {}, "
                    "but the file ends at {}",
                    path_, Quote(info.name), info.bytes, info.offset, data, bytes_.size());
      }
    }
    SLUICE_TRY(CheckApart());
    gguf_.tensors_.reserve(infos_.size());
    for (TensorInfo& info : infos_) {
      std::ranges::reverse(info.dimensions);
      gguf_.tensors_.push_back({std::string(info.name), info.format, std::move(info.dimensions),
                                bytes_.subspan(static_cast<size_t>(data + info.offset),
                                               static_cast<size_t>(info.bytes))});
    }
    return {};
  }

  Status CheckApart() const {
    std::vector<const TensorInfo*> order;
    order.reserve(infos_.size());
    for (const TensorInfo& info : infos_) order.push_back(&info);
    std::ranges::sort(order, {}, &TensorInfo::offset);
    for (size_t i = 1; i < order.size(); ++i) {
      const TensorInfo& before = *order[i - 1];
      if (before.offset + before.bytes > order[i]->offset) {
        return Fail(ErrorCode::kCorrupt,
                    "{}: tensor {} ends at {} of the data, tensor {} begins at {}", path_,
                    Quote(before.name), before.offset + before.bytes, Quote(order[i]->name),
                    order[i]->offset);
      }
    }
    return {};
  }

  const std::string& path_;
  std::span<const std::byte> bytes_;
  Cursor cursor_;
  std::set<std::string_view> names_;
  std::vector<TensorInfo> infos_;
  Gguf gguf_;
};

Expected<Gguf> Gguf::Parse(const std::string& path, std::span<const std::byte> bytes) {
  return GgufParser(path, bytes).Run();
}

const GgufValue* Gguf::Find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

Expected<std::optional<std::string_view>> Gguf::String(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->array || value->type != GgufType::kString) {
    return Fail(ErrorCode::kCorrupt, "{}: {} is not a string", path_, key);
  }
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

Expected<std::optional<uint64_t>> Gguf::Unsigned(std::string_view key) const {
  SLUICE_ASSIGN(const auto values, UnsignedArray(key));
  if (!values) return std::nullopt;
  if (Find(key)->array) return Fail(ErrorCode::kCorrupt, "{}: {} is an array", path_, key);
  return values->front();
}

namespace {

// Element `i`; nothing if it is negative or not an integer.
std::optional<uint64_t> UnsignedAt(const GgufValue& value, uint64_t i) {
  const uint64_t size = FixedBytes(value.type);
  uint64_t bits = 0;
  std::memcpy(&bits, value.bytes.data() + i * size, static_cast<size_t>(size));
  const bool negative = (bits >> (8 * size - 1)) != 0;
  switch (value.type) {
    case GgufType::kUint8:
    case GgufType::kUint16:
    case GgufType::kUint32:
    case GgufType::kUint64:
      return bits;
    case GgufType::kInt8:
    case GgufType::kInt16:
    case GgufType::kInt32:
    case GgufType::kInt64:
      return negative ? std::nullopt : std::optional(bits);
    default:
      return std::nullopt;
  }
}

}  // namespace

Expected<std::optional<double>> Gguf::Number(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const auto read = [&]<class T>(T number) {
    std::memcpy(&number, value->bytes.data(), sizeof(number));
    return static_cast<double>(number);
  };
  if (!value->array && value->type == GgufType::kFloat32) return read(float{});
  if (!value->array && value->type == GgufType::kFloat64) return read(double{});
  return Unsigned(key).transform(
      [](std::optional<uint64_t> number) { return std::optional(static_cast<double>(*number)); });
}

Expected<std::optional<std::vector<uint64_t>>> Gguf::UnsignedArray(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<uint64_t> numbers;
  if (FixedBytes(value->type) != 0) {
    for (uint64_t i = 0; i < value->count; ++i) {
      const std::optional<uint64_t> number = UnsignedAt(*value, i);
      if (!number) break;
      numbers.push_back(*number);
    }
  }
  if (numbers.size() != value->count) {
    return Fail(ErrorCode::kCorrupt, "{}: element {} of {} is not an unsigned number", path_,
                numbers.size(), key);
  }
  return numbers;
}

}  // namespace sluice
