#include "src/base/aligned_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kMapped = size_t{2} << 20;  // from here on memory comes from mmap

TEST(AlignedBuffer, IsAlignedZeroAndOfTheSizeAskedFor) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, kMapped - 64,
                            kMapped - 63, kMapped, kMapped + 1}) {
    const auto buffer = AlignedBuffer::Create(size);
    ASSERT_TRUE(buffer) << size;
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(buffer->span().size(), size);
    ASSERT_NE(buffer->data(), nullptr) << size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kAlignment, 0u) << size;
    EXPECT_TRUE(std::ranges::all_of(buffer->span(), [](std::byte b) { return b == std::byte{0}; }))
        << size;
    std::memset(buffer->data(), 0xAB, size);  // all of it is ours
  }
}

// Memory that malloc or mmap gives back must be cleared again.
TEST(AlignedBuffer, IsZeroWhenMemoryIsReused) {
  for (const size_t size : {size_t{100}, kMapped}) {
    for (int i = 0; i < 3; ++i) {
      const AlignedBuffer buffer = AlignedBuffer::Create(size).value();
      EXPECT_EQ(std::ranges::count(buffer.span(), std::byte{0}), static_cast<ptrdiff_t>(size));
      std::memset(buffer.data(), 0xAB, size);
    }
  }
}

TEST(AlignedBuffer, MovesWithoutCopying) {
  for (const size_t size : {size_t{100}, kMapped}) {
    AlignedBuffer buffer = AlignedBuffer::Create(size).value();
    std::byte* data = buffer.data();
    buffer.data()[size - 1] = std::byte{7};
    AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(moved.size(), size);
    moved = AlignedBuffer::Create(64).value();  // gives the first one's memory back
    EXPECT_EQ(moved.size(), 64u);
  }
}

TEST(AlignedBuffer, SizesThatNoMachineHasAreErrors) {
  constexpr size_t kMax = std::numeric_limits<size_t>::max();
  // (Half of what 32 bits can name a machine may have.)
  constexpr size_t kHalf = sizeof(size_t) > 4 ? kMax / 2 : kMax;
  for (const size_t size : {kMax, kMax - 62, kMax - 63, kMax - kMapped, kHalf}) {
    const auto buffer = AlignedBuffer::Create(size);
    ASSERT_FALSE(buffer) << size;
    EXPECT_THAT(buffer.error().message, testing::HasSubstr("bytes"));
  }
}

TEST(RoundUp, ToMultiples) {
  EXPECT_EQ(RoundUp(0, 16), 0u);
  EXPECT_EQ(RoundUp(1, 16), 16u);
  EXPECT_EQ(RoundUp(16, 16), 16u);
  EXPECT_EQ(RoundUp(17, 3), 18u);
  EXPECT_EQ(DivCeil(0, 16), 0u);
  EXPECT_EQ(DivCeil(16, 16), 1u);
  EXPECT_EQ(DivCeil(17, 16), 2u);
}

}  // namespace
}  // namespace sluice
