// Blocks through sluice's backends.
#ifndef SLUICE_BENCH_SLUICE_LIBRARY_H_
#define SLUICE_BENCH_SLUICE_LIBRARY_H_

#include <memory>
#include <string_view>

#include "bench/library.h"

namespace sluice::bench {

Expected<std::unique_ptr<Blocks>> CreateSluice(const Request& request, std::string_view backend);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_SLUICE_LIBRARY_H_
