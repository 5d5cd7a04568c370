// oneDNN: int8 weights with a scale per output channel, int8 activations with one scale per tensor,
// since its int8 matrix products take no scale per row. Gate's product ends in SiLU and up's in the
// multiplication by it, both inside oneDNN; amax and rounding between the products are loops of our
// own. Weights lie in the layout that oneDNN prefers for the number of tokens.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <format>
#include <list>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <unordered_map>

#include "bench/rivals/rivals.h"
#include "src/base/status.h"

namespace sluice::bench {
namespace {

using Md = dnnl::memory::desc;
using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

// The compiler makes one of each for the instruction sets that CPUs have.
#if defined(__x86_64__)
#define SLUICE_BENCH_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SLUICE_BENCH_CLONES
#endif

// Bits of non-negative floats are in the order of the floats, and their maximum is associative, so
// the compiler may vectorize it.
SLUICE_BENCH_CLONES uint32_t LargestBits(const uint32_t* x, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, x[i] & 0x7FFFFFFFu);
  return largest;
}

// Adding 1.5·2^23 leaves the rounded integer in the low bits.
SLUICE_BENCH_CLONES void Round(const float* x, size_t n, float inverse, int8_t* q) {
  for (size_t i = 0; i < n; ++i) {
    const float shifted = x[i] * inverse + 12582912.0f;
    uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof(bits));
    q[i] = static_cast<int8_t>(bits);
  }
}

// x to int8 under one scale, which is returned.
float Quantize(const float* x, size_t n, int8_t* q) {
  constexpr size_t kPiece = 1 << 14;
  const auto pieces = static_cast<std::ptrdiff_t>((n + kPiece - 1) / kPiece);
  const auto* bits = reinterpret_cast<const uint32_t*>(x);
  uint32_t largest = 0;
#pragma omp parallel for reduction(max : largest) if (pieces > 1)
  for (std::ptrdiff_t i = 0; i < pieces; ++i) {
    const size_t first = static_cast<size_t>(i) * kPiece;
    largest = std::max(largest, LargestBits(bits + first, std::min(kPiece, n - first)));
  }
  float amax;
  std::memcpy(&amax, &largest, sizeof(amax));
  if (amax == 0.0f) amax = 1.0f;
#pragma omp parallel for if (pieces > 1)
  for (std::ptrdiff_t i = 0; i < pieces; ++i) {
    const size_t first = static_cast<size_t>(i) * kPiece;
    Round(x + first, std::min(kPiece, n - first), 127.0f / amax, q + first);
  }
  return amax / 127.0f;
}

class OneDnnBlocks : public Blocks {
 public:
  explicit OneDnnBlocks(const Request& request)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), copies_(request.copies) {
    for (const Matrix m : kMatrices) {
      Plain& plain = plain_[m];
      const QuantizedMatrix& matrix = request.block->matrices[m];
      plain.rows = static_cast<dnnl_dim_t>(matrix.rows);
      plain.cols = static_cast<dnnl_dim_t>(matrix.cols);
      plain.integers = matrix.integers;
      plain.scales = dnnl::memory(Md({plain.rows}, Type::f32, Tag::a), engine_);
      std::ranges::copy(matrix.scales, static_cast<float*>(plain.scales.get_data_handle()));
      bytes_ += matrix.integers.size() + matrix.scales.size() * sizeof(float);
    }
    scale_ = dnnl::memory(Md({1}, Type::f32, Tag::a), engine_);
  }

  Status Run(size_t copy, size_t threads, MatrixView<const float> x, MatrixView<float> y) override {
    try {
      omp_set_num_threads(static_cast<int>(threads));
      Forward(PlanFor(x.rows, threads), copy, x, y);
      return {};
    } catch (const dnnl::error& error) {
      return Fail(ErrorCode::kUnsupported, "oneDNN: {}", error.what());
    }
  }

  uint64_t weight_bytes() const override { return bytes_; }
  std::string Describe() const override {
    const dnnl_version_t* version = dnnl_version();
    std::string isa = plans_.empty() ? "" : ", " + plans_.rbegin()->second.implementation;
    return std::format("onednn {}.{}.{}, int8 per tensor{}", version->major, version->minor,
                       version->patch, isa);
  }

 private:
  struct Plain {
    dnnl_dim_t rows = 0;
    dnnl_dim_t cols = 0;
    std::vector<int8_t> integers;  // [rows, cols]
    dnnl::memory scales;
  };
  using Ring = std::vector<dnnl::memory>;
  struct Product {
    dnnl::matmul primitive;
    Md source, target;
    Ring* weights = nullptr;
  };
  // What one number of tokens on one number of threads needs.
  struct Plan {
    PerMatrix<Product> products;
    dnnl::memory x, gate, hidden, quantized;
    std::string implementation;
  };

  Product MakeProduct(Matrix m, dnnl_dim_t tokens, const dnnl::post_ops& after,
                      std::string& implementation) {
    const Plain& plain = plain_[m];
    dnnl::primitive_attr attributes;
    attributes.set_scales_mask(DNNL_ARG_SRC, 0);
    attributes.set_scales_mask(DNNL_ARG_WEIGHTS, 1 << 1);
    attributes.set_post_ops(after);
    Product product;
    product.source = Md({tokens, plain.cols}, Type::s8, Tag::ab);
    product.target = Md({tokens, plain.rows}, Type::f32, Tag::ab);
    const Md any({plain.cols, plain.rows}, Type::s8, Tag::any);
    const dnnl::matmul::primitive_desc desc(engine_, product.source, any, product.target,
                                            attributes);
    product.primitive = dnnl::matmul(desc);
    product.weights = &RingOf(m, desc.weights_desc());
    implementation = desc.impl_info_str();
    return product;
  }

  // Copies in one layout. Numbers of tokens that prefer the same layout share them.
  Ring& RingOf(Matrix m, const Md& layout) {
    for (auto& [known, ring] : rings_[m]) {
      if (known == layout) return ring;
    }
    auto& [known, ring] = rings_[m].emplace_back(layout, Ring());
    Plain& plain = plain_[m];
    dnnl::memory from(Md({plain.cols, plain.rows}, Type::s8, Tag::ba), engine_,
                      plain.integers.data());
    for (size_t i = 0; i < copies_; ++i) {
      dnnl::memory to(layout, engine_);
      dnnl::reorder(from, to).execute(stream_, from, to);
      stream_.wait();
      ring.push_back(to);
    }
    return ring;
  }

  Plan& PlanFor(size_t tokens, size_t threads) {
    const auto [found, inserted] = plans_.try_emplace({tokens, threads});
    Plan& plan = found->second;
    if (!inserted) return plan;
    const auto t = static_cast<dnnl_dim_t>(tokens);
    dnnl::post_ops silu;
    silu.append_eltwise(dnnl::algorithm::eltwise_swish, 1.0f, 0.0f);
    plan.products[Matrix::kGate] = MakeProduct(Matrix::kGate, t, silu, plan.implementation);
    dnnl::post_ops multiply;
    multiply.append_binary(dnnl::algorithm::binary_mul, plan.products[Matrix::kGate].target);
    plan.products[Matrix::kUp] = MakeProduct(Matrix::kUp, t, multiply, plan.implementation);
    plan.products[Matrix::kDown] = MakeProduct(Matrix::kDown, t, {}, plan.implementation);
    plan.x = dnnl::memory(plan.products[Matrix::kUp].source, engine_);
    plan.gate = dnnl::memory(plan.products[Matrix::kGate].target, engine_);
    plan.hidden = dnnl::memory(plan.products[Matrix::kUp].target, engine_);
    plan.quantized = dnnl::memory(plan.products[Matrix::kDown].source, engine_);
    return plan;
  }

  void Execute(const Plan& plan, Matrix m, size_t copy, const dnnl::memory& source,
               const dnnl::memory& target) {
    std::unordered_map<int, dnnl::memory> arguments = {
        {DNNL_ARG_SRC, source},
        {DNNL_ARG_WEIGHTS, (*plan.products[m].weights)[copy]},
        {DNNL_ARG_DST, target},
        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC, scale_},
        {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, plain_[m].scales}};
    if (m == Matrix::kUp) {
      arguments.insert({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, plan.gate});
    }
    plan.products[m].primitive.execute(stream_, arguments);
  }

  void Forward(const Plan& plan, size_t copy, MatrixView<const float> x, MatrixView<float> y) {
    const auto quantize = [this](const float* from, size_t n, const dnnl::memory& to) {
      *static_cast<float*>(scale_.get_data_handle()) =
          Quantize(from, n, static_cast<int8_t*>(to.get_data_handle()));
    };
    quantize(x.data, x.rows * x.cols, plan.x);
    Execute(plan, Matrix::kGate, copy, plan.x, plan.gate);
    Execute(plan, Matrix::kUp, copy, plan.x, plan.hidden);
    stream_.wait();
    quantize(static_cast<const float*>(plan.hidden.get_data_handle()),
             x.rows * static_cast<size_t>(plain_[Matrix::kUp].rows), plan.quantized);
    const dnnl::memory out(plan.products[Matrix::kDown].target, engine_, y.data);
    Execute(plan, Matrix::kDown, copy, plan.quantized, out);
    stream_.wait();
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  size_t copies_;
  PerMatrix<Plain> plain_;
  uint64_t bytes_ = 0;
  dnnl::memory scale_;
  PerMatrix<std::list<std::pair<Md, Ring>>> rings_;
  std::map<std::pair<size_t, size_t>, Plan> plans_;
};

bool Takes(const BlockFormat& format) { return format == BlockFormat{{WeightType::kInt8, 0}, {}}; }

}  // namespace

Library OneDnn() {
  // One scale for all tokens' hidden vectors: their largest value rules it.
  return {"onednn", Takes, /*excused_errors=*/3, /*ring_per_threads=*/false,
          [](const Request& request) -> Expected<std::unique_ptr<Blocks>> {
            try {
              return std::make_unique<OneDnnBlocks>(request);
            } catch (const dnnl::error& error) {
              return Fail(ErrorCode::kUnsupported, "oneDNN: {}", error.what());
            }
          }};
}

}  // namespace sluice::bench
