#include "bench/page_buffer.h"

#include <sys/mman.h>

#include <cstring>

#include "src/base/aligned_buffer.h"
#include "src/base/quote.h"
#include "src/base/status.h"

namespace sluice::bench {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}  // namespace

std::string_view Name(PageKind kind) { return kind == PageKind::kHuge ? "huge" : "4k"; }

Expected<PageKind> ParsePageKind(std::string_view name) {
  for (const PageKind kind : {PageKind::kSmall, PageKind::kHuge}) {
    if (name == Name(kind)) return kind;
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown page kind {}; known: 4k, huge", Quote(name));
}

Expected<PageBuffer> PageBuffer::Create(size_t bytes, PageKind kind) {
  PageBuffer buffer;
  buffer.size_ = bytes;
  buffer.mapped_ = RoundUp(bytes, kHugePage) + kHugePage;
  void* p =
      mmap(nullptr, buffer.mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return Fail(ErrorCode::kIo, "out of memory: {} bytes", bytes);
  buffer.mapping_ = p;
  const size_t address = reinterpret_cast<size_t>(p);
  buffer.data_ = static_cast<std::byte*>(p) + (RoundUp(address, kHugePage) - address);
  madvise(p, buffer.mapped_, kind == PageKind::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(buffer.data_, 1, bytes);
  return buffer;
}

PageBuffer& PageBuffer::operator=(PageBuffer&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PageBuffer::~PageBuffer() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

}  // namespace sluice::bench
