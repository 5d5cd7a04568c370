#include "bench/dram.h"

#include <algorithm>
#include <string_view>

#include "bench/team.h"
#include "sluice/cpu.h"

namespace sluice::bench {
namespace {

constexpr size_t kLine = 64;
// What is read from one stream before the next one's turn. Four lines, because prefetchers want to
// see that a stream goes on; 1 and 16 were no better.
constexpr size_t kChunk = 4 * kLine;
// How far ahead software prefetches. With one stream it does what the hardware does anyway.
constexpr size_t kAhead = 2048;

// Loads into a register and nothing else. In assembly, so that the compiler neither drops the load
// nor needs flags for the whole file.
#if defined(__x86_64__)
struct Line512 {
  static void Load(const std::byte* p) { asm volatile("vmovdqa64 (%0), %%zmm0" ::"r"(p) : "xmm0"); }
  static void End() { asm volatile("vzeroupper" ::: "xmm0"); }
};
struct Line256 {
  static void Load(const std::byte* p) {
    asm volatile("vmovdqa (%0), %%ymm0\n\tvmovdqa 32(%0), %%ymm0" ::"r"(p) : "xmm0");
  }
  static void End() { asm volatile("vzeroupper" ::: "xmm0"); }
};
struct LinePlain {
  static void Load(const std::byte* p) {
    asm volatile(
        "movdqa (%0), %%xmm0\n\tmovdqa 16(%0), %%xmm0\n\t"
        "movdqa 32(%0), %%xmm0\n\tmovdqa 48(%0), %%xmm0" ::"r"(p)
        : "xmm0");
  }
  static void End() {}
};
#elif defined(__aarch64__)
struct LinePlain {
  static void Load(const std::byte* p) {
    asm volatile("ldp q0, q1, [%0]\n\tldp q2, q3, [%0, #32]" ::"r"(p) : "v0", "v1", "v2", "v3");
  }
  static void End() {}
};
#else
struct LinePlain {
  static void Load(const std::byte* p) {
    for (size_t i = 0; i < kLine; i += sizeof(size_t)) {
      static_cast<void>(*reinterpret_cast<const volatile size_t*>(p + i));
    }
  }
  static void End() {}
};
#endif

// `count` chunks of each of `streams` streams, which start `apart` bytes after each other and are
// `chunks` chunks long; from chunk `first` on, round and round.
struct Walk {
  const std::byte* base;
  size_t streams, apart, chunks, first, count;
};

template <class Line>
void Read(const Walk& walk) {
  size_t chunk = walk.first % walk.chunks;
  for (size_t i = 0; i < walk.count; ++i) {
    for (size_t s = 0; s < walk.streams; ++s) {
      const std::byte* p = walk.base + s * walk.apart + chunk * kChunk;
      for (size_t j = 0; j < kChunk; j += kLine) {
        __builtin_prefetch(p + j + kAhead);
        Line::Load(p + j);
      }
    }
    if (++chunk == walk.chunks) chunk = 0;
  }
  Line::End();
}

using ReadFn = void (*)(const Walk&);

ReadFn BestRead() {
#if defined(__x86_64__)
  const auto has = [](std::string_view name) {
    return std::ranges::any_of(CpuFeatures(), [&](const CpuFeature& feature) {
      return feature.name == name && feature.present;
    });
  };
  if (has("avx512")) return Read<Line512>;
  if (has("avx2")) return Read<Line256>;
#endif
  return Read<LinePlain>;
}

}  // namespace

Expected<DramReader> DramReader::Create(size_t bytes, PageKind kind) {
  DramReader reader;
  auto buffer = PageBuffer::Create(bytes, kind);
  if (!buffer) return std::unexpected(buffer.error());
  reader.buffer_ = *std::move(buffer);
  return reader;
}

double DramReader::Read(size_t threads, size_t streams, size_t bytes, size_t meet) {
  static const ReadFn read = BestRead();
  Walk walk{};
  walk.streams = streams;
  walk.chunks = buffer_.size() / threads / streams / kChunk;
  walk.apart = walk.chunks * kChunk;
  walk.first = chunks_read_;
  walk.count = std::max<size_t>(1, bytes / streams / kChunk);
  chunks_read_ += walk.count;
  const size_t between =
      meet == 0 ? walk.count : std::clamp<size_t>(meet / streams / kChunk, 1, walk.count);
  SpinBarrier barrier(threads);
  const double seconds = RunTogether(threads, [&](size_t thread) {
    Walk own = walk;
    own.base = buffer_.data() + thread * streams * walk.apart;
    for (size_t done = 0; done < walk.count; done += between) {
      if (done != 0) barrier.Wait();
      own.first = walk.first + done;
      own.count = std::min(between, walk.count - done);
      read(own);
    }
  });
  return static_cast<double>(threads * streams * walk.count * kChunk) / seconds;
}

}  // namespace sluice::bench
