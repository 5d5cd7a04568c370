// How fast threads can read memory that is in no cache, along how many streams.
#ifndef SLUICE_BENCH_DRAM_H_
#define SLUICE_BENCH_DRAM_H_

#include <cstddef>

#include "bench/page_buffer.h"

namespace sluice::bench {

// A buffer that outgrows the last-level cache. Each thread reads a part of its own, along `streams`
// places at once, as a kernel does that works on several strips of weights. Readings follow one
// another through the buffer, so none finds what the last one has left in the cache.
class DramReader {
 public:
  static Expected<DramReader> Create(size_t bytes, PageKind kind);

  // Reads about `bytes` on each thread; returns bytes per second of all threads together. With
  // `meet` the threads wait for one another whenever each has read about so many bytes, as they do
  // between the passes of a block.
  double Read(size_t threads, size_t streams, size_t bytes, size_t meet = 0);

 private:
  PageBuffer buffer_;
  size_t chunks_read_ = 0;  // of each stream; the next reading starts there
};

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_DRAM_H_
