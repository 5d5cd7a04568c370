// Dealing out a pass's scratch memory.
#ifndef SLUICE_SRC_BACKENDS_CARVER_H_
#define SLUICE_SRC_BACKENDS_CARVER_H_

#include <cstddef>

#include "src/base/aligned_buffer.h"

namespace sluice {

// Consecutive 64-byte aligned pieces of one piece of memory. With a null base it only counts, so
// the code that lays out scratch also says how much of it there must be.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <class T>
  T* Take(size_t count) {
    std::byte* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += RoundUp(count * sizeof(T), kAlignment);
    return reinterpret_cast<T*>(piece);
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_CARVER_H_
