#include "sluice/ffn.h"

#include <algorithm>
#include <cstdint>
#include <format>

#include "src/backends/backend.h"
#include "src/base/fp_environment.h"
#include "src/base/status.h"
#include "src/ffn/ffn_impl.h"

namespace sluice {

class Ffn::Impl {
 public:
  Impl(const BlockView& block_view, std::unique_ptr<BlockRunner> block_runner)
      : block(block_view), runner(std::move(block_runner)) {}
  const BlockView block;
  const std::unique_ptr<BlockRunner> runner;
};

// Scratch for one pass; longer calls reuse it pass by pass.
class Workspace::Impl {
 public:
  size_t max_tokens = 0;
  AlignedBuffer scratch;
};

Workspace::Workspace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;
Workspace::~Workspace() = default;
size_t Workspace::max_tokens() const { return impl_->max_tokens; }
size_t Workspace::bytes() const { return impl_->scratch.size(); }

Ffn::Ffn(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ffn::Ffn(Ffn&&) noexcept = default;
Ffn& Ffn::operator=(Ffn&&) noexcept = default;
Ffn::~Ffn() = default;
size_t Ffn::d_model() const { return impl_->block.d_model; }
size_t Ffn::d_ff() const { return impl_->block.d_ff; }
std::string Ffn::Describe() const { return impl_->runner->Describe(); }

Expected<Ffn> CreateFfn(const BlockView& block, const FfnOptions& options) {
  SLUICE_TRY(CheckBlock(block));
  SLUICE_ASSIGN(const Backend* backend, FindBackend(options.backend));
  SLUICE_ASSIGN(std::unique_ptr<BlockRunner> runner,
                backend->create(block, {options.target, options.pool}));
  return Ffn(std::make_unique<Ffn::Impl>(block, std::move(runner)));
}

Expected<Workspace> Ffn::Plan(size_t max_tokens) const {
  auto impl = std::make_unique<Workspace::Impl>();
  impl->max_tokens = max_tokens;
  const size_t pass_tokens = std::min(max_tokens, impl_->runner->MaxPassTokens());
  SLUICE_ASSIGN(impl->scratch, AlignedBuffer::Create(impl_->runner->ScratchBytes(pass_tokens)));
  return Workspace(std::move(impl));
}

namespace {

Status CheckView(std::string_view name, size_t cols, size_t stride, const void* data, size_t rows,
                 size_t d_model) {
  if (cols != d_model) {
    return Fail(ErrorCode::kInvalidArgument, "{} has {} columns, the block's d_model is {}", name,
                cols, d_model);
  }
  if (stride < cols) {
    return Fail(ErrorCode::kInvalidArgument, "{} has a stride of {}, less than its {} columns",
                name, stride, cols);
  }
  if (data == nullptr && rows != 0) {
    return Fail(ErrorCode::kInvalidArgument, "{} is null but has {} rows", name, rows);
  }
  return {};
}

// Whether writing y would change values of x that are still to be read. Rows of two views with one
// stride that lie in columns of their own, as the halves of a wider matrix do, share no memory.
bool Overlap(MatrixView<const float> x, MatrixView<const float> y) {
  if (x.rows == 0) return false;
  const auto begin = [](const auto& v) { return reinterpret_cast<uintptr_t>(v.data); };
  const auto end = [&](const auto& v) {
    return begin(v) + ((v.rows - 1) * v.stride + v.cols) * sizeof(float);
  };
  if (end(x) <= begin(y) || end(y) <= begin(x)) return false;
  if (x.stride != y.stride) return true;
  const uintptr_t stride = x.stride * sizeof(float);
  const uintptr_t width = x.cols * sizeof(float);
  const uintptr_t apart = (std::max(begin(x), begin(y)) - std::min(begin(x), begin(y))) % stride;
  return apart < width || apart + width > stride;
}

}  // namespace

Status Ffn::Forward(MatrixView<const float> x, MatrixView<float> y, Workspace& workspace,
                    Output output) const {
  SLUICE_TRY(CheckView("x", x.cols, x.stride, x.data, x.rows, d_model()));
  SLUICE_TRY(CheckView("y", y.cols, y.stride, y.data, y.rows, d_model()));
  if (x.rows != y.rows) {
    return Fail(ErrorCode::kInvalidArgument, "x has {} tokens, y {}", x.rows, y.rows);
  }
  const bool in_place = x.data == y.data && (x.stride == y.stride || x.rows == 1);
  if (!in_place && Overlap(x, y)) {
    return Fail(ErrorCode::kInvalidArgument,
                "x and y overlap in memory but are not the same view: data {} elements apart, "
                "strides {} and {}",
                std::max<const float*>(x.data, y.data) - std::min<const float*>(x.data, y.data),
                x.stride, y.stride);
  }
  if (workspace.impl_ == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, "the workspace was moved from");
  }
  if (x.rows > workspace.max_tokens()) {
    return Fail(ErrorCode::kInvalidArgument, "x has {} tokens, the workspace was planned for {}",
                x.rows, workspace.max_tokens());
  }
  const size_t needed =
      impl_->runner->ScratchBytes(std::min(x.rows, impl_->runner->MaxPassTokens()));
  if (needed > workspace.bytes()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the workspace was planned for a smaller block: it has {} bytes, {} tokens need {}",
                workspace.bytes(), x.rows, needed);
  }
  const FpEnvironment environment;
  const size_t pass_tokens = impl_->runner->MaxPassTokens();
  for (size_t first = 0; first < x.rows; first += pass_tokens) {
    const size_t count = std::min(pass_tokens, x.rows - first);
    const Pass pass = {x.Rows(first, count), y.Rows(first, count), output == Output::kAddToResidual,
                       workspace.impl_->scratch.span()};
    impl_->runner->GateUp(pass);
    impl_->runner->Down(pass);
  }
  return {};
}

std::vector<BackendInfo> Backends() {
  std::vector<BackendInfo> backends;
  for (const Backend& backend : AllBackends()) {
    backends.push_back({backend.name, std::string(backend.description)});
  }
  return backends;
}

}  // namespace sluice
