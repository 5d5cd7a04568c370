// The libraries that compute a block, behind one interface: sluice, and those it is compared with.
#ifndef SLUICE_BENCH_LIBRARY_H_
#define SLUICE_BENCH_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/block.h"
#include "bench/options.h"
#include "bench/page_buffer.h"
#include "sluice/error.h"
#include "sluice/matrix_view.h"

namespace sluice::bench {

struct Request {
  const PlainBlock* block = nullptr;  // needed only until the copies are made
  size_t copies = 1;
  std::vector<size_t> threads;  // all that Run will be called with
  size_t max_tokens = 1;
  std::string target;  // sluice only
  PageKind pages = PageKind::kHuge;
};

// Copies of a block in a library's own form.
class Blocks {
 public:
  virtual ~Blocks() = default;
  // y = FFN(x) by copy `copy`. Rows of x and y follow one another without gaps.
  virtual Status Run(size_t copy, size_t threads, MatrixView<const float> x,
                     MatrixView<float> y) = 0;
  // Bytes of weights and scales that a call reads.
  virtual uint64_t weight_bytes() const = 0;
  // Versions, instruction sets, activations: one line.
  virtual std::string Describe() const = 0;
};

struct Library {
  std::string_view name;
  bool (*takes)(const BlockFormat& format);
  // How many times the error that one scale a token makes (ExactResult::row_error) its activations
  // excuse: what is beyond is wrong.
  double excused_errors;
  // The weights are kept once for each number of threads, which memory has to allow for.
  bool ring_per_threads;
  Expected<std::unique_ptr<Blocks>> (*create)(const Request& request);
};

const Library& Sluice();
// Those built in: XNNPACK always, others as CMake found them.
std::span<const Library> Rivals();

// Runs `tokens` tokens on copy `copy` and compares with `exact`, of kDistinctTokens tokens. The
// error says by how much the result is wrong.
Status Check(const Library& library, Blocks& blocks, size_t copy, size_t threads,
             MatrixView<const float> x, MatrixView<float> y, const ExactResult& exact);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_LIBRARY_H_
