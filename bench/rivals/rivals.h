// The libraries that sluice is compared with, one file each.
#ifndef SLUICE_BENCH_RIVALS_RIVALS_H_
#define SLUICE_BENCH_RIVALS_RIVALS_H_

#include "bench/library.h"

namespace sluice::bench {

Library Xnnpack();
Library OneDnn();
Library OnnxRuntime();
Library Ggml();

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_RIVALS_RIVALS_H_
