// ggml's CPU backend: Q4_0 and Q8_0, which are int4 and int8 in blocks of 32 with fp16 scales,
// activations int8 in blocks. Weights lie in the buffer type that ggml offers for them, the
// repacked one where it has one, as llama.cpp chooses it.
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <format>
#include <map>

#include "bench/rivals/rivals.h"
#include "src/base/status.h"

namespace sluice::bench {
namespace {

constexpr size_t kBlock = 32;

struct Deleter {
  void operator()(ggml_context* p) const { ggml_free(p); }
  void operator()(ggml_backend_buffer* p) const { ggml_backend_buffer_free(p); }
  void operator()(ggml_backend* p) const { ggml_backend_free(p); }
  void operator()(ggml_threadpool* p) const { ggml_threadpool_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Deleter>;

// Descriptions of `tensors` tensors and a graph, no data.
Owned<ggml_context> Context(size_t tensors) {
  ggml_init_params params = {};
  params.mem_size = tensors * ggml_tensor_overhead() + ggml_graph_overhead();
  params.no_alloc = true;
  return Owned<ggml_context>(ggml_init(params));
}

// A row-major matrix as blocks: an fp16 scale, then 32 int8, or 16 bytes of nibbles + 8 of which
// byte j has values j and j + 16.
std::vector<std::byte> Encode(const QuantizedMatrix& matrix) {
  const bool int4 = matrix.format.type == WeightType::kInt4;
  const size_t payload = int4 ? kBlock / 2 : kBlock;
  std::vector<std::byte> bytes(matrix.scales.size() * (sizeof(ggml_fp16_t) + payload));
  std::byte* to = bytes.data();
  const int8_t* q = matrix.integers.data();
  for (const float scale : matrix.scales) {
    const ggml_fp16_t half = ggml_fp32_to_fp16(scale);
    std::memcpy(to, &half, sizeof(half));
    to += sizeof(half);
    for (size_t j = 0; j < payload; ++j) {
      to[j] = static_cast<std::byte>(int4 ? (q[j] + 8) | (q[j + kBlock / 2] + 8) << 4 : q[j]);
    }
    to += payload;
    q += kBlock;
  }
  return bytes;
}

class GgmlBlocks : public Blocks {
 public:
  static Expected<std::unique_ptr<Blocks>> Create(const Request& request) {
    auto blocks = std::make_unique<GgmlBlocks>();
    blocks->backend_.reset(ggml_backend_cpu_init());
    if (blocks->backend_ == nullptr) return Fail(ErrorCode::kUnsupported, "ggml: no CPU backend");
    for (const size_t threads : request.threads) {
      ggml_threadpool_params params = ggml_threadpool_params_default(static_cast<int>(threads));
      blocks->pools_[threads].reset(ggml_threadpool_new(&params));
    }
    SLUICE_TRY(blocks->MakeWeights(request));
    return blocks;
  }

  Status Run(size_t copy, size_t threads, MatrixView<const float> x, MatrixView<float> y) override {
    Graph& graph = GraphFor(x.rows);
    for (const Matrix m : kMatrices) graph.products[m]->src[0] = weights_[copy][m];
    ggml_backend_cpu_set_n_threads(backend_.get(), static_cast<int>(threads));
    ggml_backend_cpu_set_threadpool(backend_.get(), pools_.at(threads).get());
    std::memcpy(graph.x->data, x.data, ggml_nbytes(graph.x));
    if (ggml_backend_graph_compute(backend_.get(), graph.graph) != GGML_STATUS_SUCCESS) {
      return Fail(ErrorCode::kUnsupported, "ggml: the graph failed");
    }
    std::memcpy(y.data, graph.products[Matrix::kDown]->data, y.rows * y.cols * sizeof(float));
    // Its workers would otherwise spin beside the next measurement.
    ggml_threadpool_pause(pools_.at(threads).get());
    return {};
  }

  uint64_t weight_bytes() const override { return bytes_; }
  std::string Describe() const override {
    return std::format("ggml {}, {}", ggml_type_name(weights_.front()[Matrix::kUp]->type),
                       buffer_type_name_);
  }

 private:
  struct Graph {
    Owned<ggml_context> context;
    Owned<ggml_backend_buffer> buffer;
    ggml_cgraph* graph = nullptr;
    ggml_tensor* x = nullptr;
    PerMatrix<ggml_tensor*> products{};
  };

  ggml_tensor* NewMatrix(ggml_context* context, const QuantizedMatrix& matrix) const {
    const ggml_type type =
        matrix.format.type == WeightType::kInt4 ? GGML_TYPE_Q4_0 : GGML_TYPE_Q8_0;
    return ggml_new_tensor_2d(context, type, static_cast<int64_t>(matrix.cols),
                              static_cast<int64_t>(matrix.rows));
  }

  // The first of the CPU's own buffer types that can multiply such a matrix, else plain memory.
  ggml_backend_buffer_type_t BufferTypeFor(const QuantizedMatrix& matrix) const {
    ggml_backend_dev_t device = ggml_backend_get_device(backend_.get());
    const auto extra =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
    ggml_backend_buffer_type_t* types = extra == nullptr ? nullptr : extra(device);
    for (; types != nullptr && *types != nullptr; ++types) {
      const Owned<ggml_context> context = Context(3);
      ggml_tensor* w = NewMatrix(context.get(), matrix);
      ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, w->ne[0], 512);
      ggml_tensor* y = ggml_mul_mat(context.get(), w, x);
      const Owned<ggml_backend_buffer> buffer(ggml_backend_buft_alloc_buffer(*types, 0));
      w->buffer = buffer.get();
      if (ggml_backend_dev_supports_op(device, y)) return *types;
    }
    return ggml_backend_cpu_buffer_type();
  }

  Status MakeWeights(const Request& request) {
    const auto& matrices = request.block->matrices;
    ggml_backend_buffer_type_t type = BufferTypeFor(matrices[Matrix::kUp]);
    buffer_type_name_ = ggml_backend_buft_name(type);
    weight_context_ = Context(3 * request.copies);
    for (size_t i = 0; i < request.copies; ++i) {
      auto& copy = weights_.emplace_back();
      for (const Matrix m : kMatrices) copy[m] = NewMatrix(weight_context_.get(), matrices[m]);
    }
    weight_buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(weight_context_.get(), type));
    if (weight_buffer_ == nullptr) return Fail(ErrorCode::kIo, "ggml: out of memory");
    for (const Matrix m : kMatrices) {
      const std::vector<std::byte> bytes = Encode(matrices[m]);
      bytes_ += bytes.size();
      for (auto& copy : weights_) {
        ggml_backend_tensor_set(copy[m], bytes.data(), 0, bytes.size());
      }
    }
    return {};
  }

  // One graph for each number of tokens; Run puts the weights in.
  Graph& GraphFor(size_t tokens) {
    const auto [found, inserted] = graphs_.try_emplace(tokens);
    Graph& g = found->second;
    if (!inserted) return g;
    g.context = Context(16);
    ggml_context* context = g.context.get();
    const auto& weights = weights_.front();
    g.x = ggml_new_tensor_2d(context, GGML_TYPE_F32, weights[Matrix::kUp]->ne[0],
                             static_cast<int64_t>(tokens));
    const auto multiply = [&](Matrix m, ggml_tensor* x) {
      return g.products[m] = ggml_mul_mat(context, weights[m], x);
    };
    ggml_tensor* gate = multiply(Matrix::kGate, g.x);
    ggml_tensor* up = multiply(Matrix::kUp, g.x);
    ggml_tensor* hidden = ggml_swiglu_split(context, gate, up);
    g.graph = ggml_new_graph(context);
    ggml_build_forward_expand(g.graph, multiply(Matrix::kDown, hidden));
    g.buffer.reset(
        ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type()));
    return g;
  }

  std::map<size_t, Owned<ggml_threadpool>> pools_;  // by the number of threads
  Owned<ggml_backend> backend_;
  Owned<ggml_context> weight_context_;
  Owned<ggml_backend_buffer> weight_buffer_;
  std::vector<PerMatrix<ggml_tensor*>> weights_;  // by copy
  std::map<size_t, Graph> graphs_;                // by the number of tokens
  std::string buffer_type_name_;
  uint64_t bytes_ = 0;
};

// Blocks of 32 that K consists of.
bool Takes(const BlockFormat& format) {
  return format.weights.block == kBlock && !format.activations;
}

}  // namespace

Library Ggml() {
  return {"ggml", Takes, /*excused_errors=*/1.5, /*ring_per_threads=*/false,
          [](const Request& request) -> Expected<std::unique_ptr<Blocks>> {
            if (request.block->d_model % kBlock != 0 || request.block->d_ff % kBlock != 0) {
              return Fail(ErrorCode::kUnsupported, "ggml: {}x{} is not made of blocks of 32",
                          request.block->d_model, request.block->d_ff);
            }
            return GgmlBlocks::Create(request);
          }};
}

}  // namespace sluice::bench
