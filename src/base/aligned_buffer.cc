#include "src/base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "src/base/status.h"

namespace sluice {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}  // namespace

void AlignedFree::operator()(std::byte* p) const {
  if (mapped_bytes != 0) {
    munmap(p, mapped_bytes);
  } else {
    std::free(p);
  }
}

Expected<AlignedBuffer> AlignedBuffer::Create(size_t bytes) {
  AlignedBuffer buffer;
  buffer.size_ = bytes;
  // Never null, so that spans of empty buffers are valid.
  const size_t wanted = RoundUp(bytes == 0 ? 1 : bytes, kAlignment);
  if (wanted < bytes)
    return Fail(ErrorCode::kInvalidArgument, "{} bytes cannot be allocated", bytes);
  if (wanted < kHugePage) {
    auto* p = static_cast<std::byte*>(std::aligned_alloc(kAlignment, wanted));
    if (p == nullptr) return Fail(ErrorCode::kIo, "out of memory: {} bytes", wanted);
    std::memset(p, 0, wanted);
    buffer.data_ = std::unique_ptr<std::byte, AlignedFree>(p);
    return buffer;
  }
  const size_t mapped = RoundUp(wanted, kHugePage);
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return Fail(ErrorCode::kIo, "out of memory: {} bytes", mapped);
  madvise(p, mapped, MADV_HUGEPAGE);  // an advice: failure costs speed only
  buffer.data_ =
      std::unique_ptr<std::byte, AlignedFree>(static_cast<std::byte*>(p), AlignedFree{mapped});
  return buffer;
}

}  // namespace sluice
