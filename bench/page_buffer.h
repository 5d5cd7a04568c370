// Large memory with a chosen page size: what the weights of a model lie in.
#ifndef SLUICE_BENCH_PAGE_BUFFER_H_
#define SLUICE_BENCH_PAGE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "sluice/error.h"

namespace sluice::bench {

// What the operating system is asked for; whether it gives huge pages is its own affair.
enum class PageKind : uint8_t { kSmall, kHuge };
std::string_view Name(PageKind kind);  // "4k", "huge"
Expected<PageKind> ParsePageKind(std::string_view name);

// Page-mapped, aligned to 2 MiB, every page written once: memory that was never written is the one
// page of zeros, which always is in a cache.
class PageBuffer {
 public:
  PageBuffer() = default;
  static Expected<PageBuffer> Create(size_t bytes, PageKind kind);
  PageBuffer(PageBuffer&& other) noexcept { *this = std::move(other); }
  PageBuffer& operator=(PageBuffer&& other) noexcept;
  ~PageBuffer();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_PAGE_BUFFER_H_
