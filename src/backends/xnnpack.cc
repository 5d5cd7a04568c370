#include "src/backends/xnnpack.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <filesystem>
#include <format>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "src/backends/carver.h"
#include "src/backends/xnnpack_check.h"
#include "src/backends/xnnpack_operators.h"
#include "src/backends/xnnpack_weights.h"
#include "src/base/aligned_buffer.h"
#include "src/base/status.h"
#include "src/base/thread_pool.h"
#include "src/kernels/kernels.h"

namespace sluice {
namespace {

// XNNPACK reads weights once per 10 to 16 tokens, and larger batches still gain a little.
constexpr size_t kPassTokens = 512;
// Columns that one task combines: enough work to be worth a task, few enough to split one token.
constexpr size_t kCombineColumns = 1024;

XnnRows TakeRows(Carver& carver, size_t tokens, size_t cols) {
  XnnRows rows;
  rows.cols = cols;
  rows.stride = RoundUp(cols, kMaxBlock);  // what any matrix pads its K to, or more
  rows.floats = carver.Take<float>(tokens * rows.stride + kXnnExtraBytes);
  rows.values = carver.Take<int8_t>(tokens * rows.stride + kXnnExtraBytes);
  rows.params = carver.Take<xnn_quantization_params>(tokens + kXnnExtraParams);
  return rows;
}

// The shared library that XNNPACK was loaded from. XNNPACK has no version function, but in Debian
// the name ends in the date of the commit.
std::string LibraryName() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<void*>(&xnn_initialize), &info) == 0 || info.dli_fname == nullptr) {
    return "of unknown version";
  }
  const std::string name = std::filesystem::path(info.dli_fname).filename().string();
  return name.find("XNNPACK") == std::string::npos ? "linked statically" : name;
}

class XnnpackRunner final : public BlockRunner {
 public:
  static Expected<std::unique_ptr<BlockRunner>> Create(const BlockView& block,
                                                       const RunnerOptions& options);

  size_t MaxPassTokens() const override { return kPassTokens; }
  size_t ScratchBytes(size_t tokens) const override {
    return Scratch(nullptr, *this, tokens).bytes;
  }
  void GateUp(const Pass& pass) const override;
  void Down(const Pass& pass) const override;
  std::string Describe() const override;

 private:
  // Where things are in the scratch memory of a pass.
  struct Scratch {
    Scratch(std::byte* base, const XnnpackRunner& runner, size_t tokens);
    XnnRows x;
    XnnRows hidden;
    PerMatrix<float*> products;    // [tokens, rows of the matrix]
    uint32_t* poisoned = nullptr;  // [tokens]: x or the hidden vector is not finite
    size_t bytes = 0;
  };

  explicit XnnpackRunner(const BlockView& block) : block_(block) {}
  Status AddMatrix(Matrix matrix);
  bool ReadsQd8(Matrix matrix) const {
    return matrices_[matrix] && TakesQd8(matrices_[matrix]->kernel());
  }
  void LoadX(const Pass& pass, const Scratch& scratch) const;
  bool Multiply(const XnnRows& rows, std::initializer_list<Matrix> matrices, size_t tokens,
                const Scratch& scratch) const;
  void Combine(size_t tokens, const Scratch& scratch) const;

  BlockView block_;
  const ThreadPool* pool_ = nullptr;
  const Kernels* kernels_ = nullptr;
  std::optional<XnnConvert> convert_;
  PerMatrix<std::optional<XnnMatrix>> matrices_;
  mutable std::mutex mutex_;
};

XnnpackRunner::Scratch::Scratch(std::byte* base, const XnnpackRunner& runner, size_t tokens) {
  Carver carver(base);
  x = TakeRows(carver, tokens, runner.block_.d_model);
  hidden = TakeRows(carver, tokens, runner.block_.d_ff);
  for (const Matrix m : kMatrices) {
    products[m] = carver.Take<float>(tokens * runner.block_.matrices[m].layout.rows);
  }
  poisoned = carver.Take<uint32_t>(tokens);
  bytes = carver.used();
}

Expected<std::unique_ptr<BlockRunner>> XnnpackRunner::Create(const BlockView& block,
                                                             const RunnerOptions& options) {
  if (!options.target.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "xnnpack: target {} cannot be forced; XNNPACK chooses its own kernels",
                options.target);
  }
  SLUICE_TRY(InitializeXnnpack());
  auto runner = std::unique_ptr<XnnpackRunner>(new XnnpackRunner(block));
  runner->pool_ = options.pool;
  SLUICE_ASSIGN(const KernelPair kernels,
                FindKernels(/*target=*/{}, block.matrices[Matrix::kUp].layout.format));
  runner->kernels_ = kernels.decode;
  SLUICE_ASSIGN(runner->convert_, XnnConvert::Create());
  for (const Matrix m : kMatrices) {
    if (m == Matrix::kGate && !block.gated) continue;
    SLUICE_TRY(runner->AddMatrix(m));
  }
  return runner;
}

Status XnnpackRunner::AddMatrix(Matrix matrix) {
  const PackedMatrixView& packed = block_.matrices[matrix];
  SLUICE_ASSIGN(XnnKernel kernel, XnnKernelFor(matrix, packed.layout));
  // The int8 operator does int4 weights as well, in twice the memory; Describe says that it does.
  if (kernel == XnnKernel::kQc4w && !XnnKernelWorks(kernel)) kernel = XnnKernel::kQc8w;
  if (!XnnKernelWorks(kernel)) {
    return Fail(ErrorCode::kUnsupported,
                "xnnpack: {} is {}; XNNPACK's {} operator computes wrong results on this CPU",
                Name(matrix), Name(packed.layout.format), Name(kernel));
  }
  SLUICE_ASSIGN(const XnnWeights weights, ToXnnWeights(matrix, packed, kernel));
  auto created = XnnMatrix::Create(weights, RoundUp(packed.layout.cols, kMaxBlock));
  if (!created) {
    return Fail(created.error().code, "xnnpack: {} is {}; {}", Name(matrix),
                Name(packed.layout.format), created.error().message);
  }
  matrices_[matrix] = *std::move(created);
  return {};
}

// Copies x to rows that XNNPACK may read beyond, with padding; a row that is not finite becomes 0.
void XnnpackRunner::LoadX(const Pass& pass, const Scratch& scratch) const {
  const XnnRows& x = scratch.x;
  ParallelFor(pool_, pass.x.rows, /*grain=*/1, [&](size_t token, size_t) {
    const std::span<const float> from = pass.x.row(token);
    float* row = x.floats + token * x.stride;
    const bool finite = kernels_->all_finite(from.data(), from.size());
    if (finite) std::ranges::copy(from, row);
    std::fill(finite ? row + x.cols : row, row + x.stride, 0.0f);
    scratch.poisoned[token] = finite ? 0 : 1;
  });
}

// The products of `matrices` with `rows`, whose floats are filled in.
bool XnnpackRunner::Multiply(const XnnRows& rows, std::initializer_list<Matrix> matrices,
                             size_t tokens, const Scratch& scratch) const {
  pthreadpool_t pool = PoolHandle(pool_);
  if (std::ranges::any_of(matrices, [&](Matrix m) { return ReadsQd8(m); }) &&
      !convert_->Run(rows, tokens, pool)) {
    return false;
  }
  return std::ranges::all_of(matrices, [&](Matrix m) {
    return !matrices_[m] || matrices_[m]->Run(rows, tokens, scratch.products[m], pool);
  });
}

// act(g) ⊙ u into rows as LoadX makes them.
void XnnpackRunner::Combine(size_t tokens, const Scratch& scratch) const {
  const XnnRows& hidden = scratch.hidden;
  const size_t chunks = DivCeil(hidden.cols, kCombineColumns);
  ParallelFor(pool_, tokens * chunks, /*grain=*/1, [&](size_t task, size_t) {
    const size_t token = task / chunks;
    const size_t first = task % chunks * kCombineColumns;
    const auto part = [&](Matrix m) { return scratch.products[m] + token * hidden.cols + first; };
    const auto bias = [&](Matrix m) {
      const float* all = block_.matrices[m].bias;
      return all == nullptr ? nullptr : all + first;
    };
    CombineArgs args;
    args.activation = block_.activation;
    args.gate = block_.gated ? part(Matrix::kGate) : nullptr;
    args.gate_bias = block_.gated ? bias(Matrix::kGate) : nullptr;
    args.up = part(Matrix::kUp);
    args.up_bias = bias(Matrix::kUp);
    args.out = hidden.floats + token * hidden.stride + first;
    args.n = std::min(kCombineColumns, hidden.cols - first);
    if (!kernels_->combine(args)) {
      std::atomic_ref(scratch.poisoned[token]).store(1, std::memory_order_relaxed);
    }
  });
  for (size_t token = 0; token < tokens; ++token) {
    float* row = hidden.floats + token * hidden.stride;
    std::fill(scratch.poisoned[token] == 0 ? row + hidden.cols : row, row + hidden.stride, 0.0f);
  }
}

void XnnpackRunner::GateUp(const Pass& pass) const {
  const size_t tokens = pass.x.rows;
  if (tokens == 0) return;
  const Scratch scratch(pass.scratch.data(), *this, tokens);
  assert(scratch.bytes <= pass.scratch.size());
  const std::scoped_lock lock(mutex_);
  LoadX(pass, scratch);
  const bool done = Multiply(scratch.x, {Matrix::kGate, Matrix::kUp}, tokens, scratch);
  Combine(tokens, scratch);
  // Only a fault of ours makes XNNPACK refuse here; NaN is loud where an assertion is not compiled.
  assert(done);
  if (!done) std::fill_n(scratch.poisoned, tokens, 1u);
}

void XnnpackRunner::Down(const Pass& pass) const {
  const size_t tokens = pass.x.rows;
  if (tokens == 0) return;
  const Scratch scratch(pass.scratch.data(), *this, tokens);
  const std::scoped_lock lock(mutex_);
  const bool done = Multiply(scratch.hidden, {Matrix::kDown}, tokens, scratch);
  assert(done);
  constexpr static uint32_t kPoisoned = 1;
  ParallelFor(pool_, tokens, /*grain=*/1, [&](size_t token, size_t) {
    FinishArgs args;
    args.row = scratch.products[Matrix::kDown] + token * block_.d_model;
    args.bias = block_.matrices[Matrix::kDown].bias;
    args.y = pass.y.row(token).data();
    args.n = block_.d_model;
    args.add_to_residual = pass.add_to_residual;
    args.poisoned = done ? scratch.poisoned + token : &kPoisoned;
    kernels_->finish(args);
  });
}

std::string XnnpackRunner::Describe() const {
  const bool qd8 = std::ranges::any_of(kMatrices, [&](Matrix m) { return ReadsQd8(m); });
  std::string text =
      std::format("xnnpack {} (activations: {}; elementwise: {}", LibraryName(),
                  qd8 ? "its own qd8, per token, asymmetric" : "f32", kernels_->target);
  for (const Matrix m : kMatrices) {
    const WeightFormat format = block_.matrices[m].layout.format;
    if (ReadsQd8(m) && format == WeightFormat{WeightType::kInt4, 0} &&
        matrices_[m]->kernel() == XnnKernel::kQc8w) {
      text += std::format("; {} {} by its int8 operator, its int4 one is wrong on this CPU",
                          Name(m), Name(format));
    }
  }
  return text + ")";
}

}  // namespace

Expected<std::unique_ptr<BlockRunner>> CreateXnnpackRunner(const BlockView& block,
                                                           const RunnerOptions& options) {
  return XnnpackRunner::Create(block, options);
}

}  // namespace sluice
