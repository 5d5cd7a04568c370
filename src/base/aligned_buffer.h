// Owned memory for tiles and scratch.
#ifndef SLUICE_SRC_BASE_ALIGNED_BUFFER_H_
#define SLUICE_SRC_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <memory>
#include <span>

#include "sluice/error.h"

namespace sluice {

// One cache line, one AVX-512 register, one R16K4 tile.
inline constexpr size_t kAlignment = 64;

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr size_t DivCeil(size_t value, size_t divisor) { return (value + divisor - 1) / divisor; }

struct AlignedFree {
  size_t mapped_bytes = 0;  // 0: from the heap
  void operator()(std::byte* p) const;
};

// 64-byte aligned, zero-filled bytes. From 2 MiB up the memory is page-mapped and advised to use
// huge pages: weights are read once per token, so each TLB miss saved is time saved.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  static Expected<AlignedBuffer> Create(size_t bytes);

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<std::byte, AlignedFree> data_;
  size_t size_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_SRC_BASE_ALIGNED_BUFFER_H_
