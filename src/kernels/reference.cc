#include "src/kernels/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "src/base/half.h"
#include "src/kernels/activation.h"

namespace sluice::reference {
namespace {

uint32_t AbsBits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu; }
bool IsFinite(float x) { return AbsBits(x) < 0x7F800000u; }

// 2^n for −126 <= n <= 127.
float PowerOfTwo(int n) { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

// e^−(a + a_low) = p · 2^n for 0 <= a <= kExpClamp and a_low far smaller.
struct Exp {
  float p;
  int n;
};
Exp ExpOfMinus(float a, float a_low) {
  namespace c = activation;
  const int n = static_cast<int>(std::nearbyint(a * -c::kLog2E));
  const float nf = static_cast<float>(n);
  float r = std::fma(nf, -c::kLn2High, -a);
  r = std::fma(nf, -c::kLn2Low, r);
  r = r - a_low;
  float q = c::kExp[4];
  for (int i = 3; i >= 0; --i) q = std::fma(q, r, c::kExp[i]);
  return {std::fma(r * r, q, r) + 1.0f, n};
}

// p · 2^n where it only has to be right while it is not negligible beside 1.
float Value(Exp e) { return e.p * PowerOfTwo(std::max(e.n, -126)); }
// y · 2^n, rounded once.
float Scale(float y, int n) { return y * PowerOfTwo(n >> 1) * PowerOfTwo(n - (n >> 1)); }

// (x or 1) · σ(±(a + a_low)), the sign that of x: the shared tail of silu, sigmoid and gelu_tanh.
float TimesSigmoid(float factor, float x, float a, float a_low) {
  const Exp e = ExpOfMinus(a, a_low);
  const bool negative = x < 0.0f;
  const float y = (negative ? factor * e.p : factor) / (1.0f + Value(e));
  return Scale(y, negative ? e.n : 0);
}

float Silu(float x) {
  return TimesSigmoid(std::max(x, -activation::kExpClamp), x,
                      std::min(std::fabs(x), activation::kExpClamp), 0.0f);
}

float Sigmoid(float x) {
  return TimesSigmoid(1.0f, x, std::min(std::fabs(x), activation::kExpClamp), 0.0f);
}

float GeluTanh(float x) {
  namespace c = activation;
  const float a = std::min(std::fabs(x), c::kTanhClamp);
  // s + s_low = a²; u + u_low = c2 · a²; t + t_low = c1 + u.
  const float s = a * a;
  const float s_low = std::fma(a, a, -s);
  const float u = c::kTanh2High * s;
  float u_low = std::fma(c::kTanh2High, s, -u);
  u_low = std::fma(c::kTanh2High, s_low, u_low);
  u_low = std::fma(c::kTanh2Low, s, u_low);
  const float t = c::kTanh1High + u;
  const float part = t - c::kTanh1High;
  float t_low = (c::kTanh1High - (t - part)) + (u - part);
  t_low = t_low + (u_low + c::kTanh1Low);
  const float v = a * t;
  const float v_low = std::fma(a, t_low, std::fma(a, t, -v));
  return TimesSigmoid(std::max(x, -c::kTanhClamp), x, v, v_low);
}

float Gelu(float x) {
  namespace c = activation;
  const float a = std::min(std::fabs(x), c::kErfcClamp);
  const float s = a * a;
  const float s_low = std::fma(a, a, -s);
  const Exp e = ExpOfMinus(0.5f * s, 0.5f * s_low);
  const float inverse = 1.0f / (a + c::kErfcShift);
  const float t = (a - c::kErfcShift) * inverse;
  float r = c::kErfc[9];
  for (int i = 8; i >= 0; --i) r = std::fma(r, t, c::kErfc[i]);
  r = r * inverse;
  // x·Φ(x) = −a·Φ(−a) for x < 0, and x − x·Φ(−x) for x >= 0.
  if (x < 0.0f) return Scale(-a * (r * e.p), e.n);
  return std::fma(-a, r * Value(e), x);
}

// What one weight contributes: its integer, read from the packed line.
int Integer(const PackedLayout& layout, const std::byte* strip, size_t r, size_t k) {
  if (layout.format.type == WeightType::kInt8) {
    return static_cast<int8_t>(strip[(k / 4) * kLineBytes + 4 * r + k % 4]);
  }
  const int byte = std::to_integer<int>(strip[(k / 8) * kLineBytes + 4 * r + k % 4]);
  return (k % 8 < 4 ? byte & 15 : byte >> 4) - 8;
}

float FloatWeight(const PackedLayout& layout, const std::byte* strip, size_t r, size_t k) {
  if (layout.format.type == WeightType::kBf16) {
    Bf16 half;
    std::memcpy(&half, strip + (k * kStripRows + r) * sizeof(half), sizeof(half));
    return ToFloat(half);
  }
  float value;
  std::memcpy(&value, strip + (k * kStripRows + r) * sizeof(value), sizeof(value));
  return value;
}

float WeightScale(const PackedLayout& layout, const std::byte* scales, size_t r, size_t k) {
  if (!layout.format.blocked()) {
    float scale;
    std::memcpy(&scale, scales + r * sizeof(scale), sizeof(scale));
    return scale;
  }
  Bf16 half;
  std::memcpy(&half, scales + (k / layout.block() * kStripRows + r) * sizeof(half), sizeof(half));
  return ToFloat(half);
}

float DotFloat(const DotArgs& args, size_t strip, size_t r, size_t token) {
  const float* x = args.x->floats + token * args.x->float_stride;
  float acc = 0.0f;
  for (size_t k = 0; k < args.layout.cols; ++k) {
    acc = std::fma(FloatWeight(args.layout, args.weights[strip], r, k), x[k], acc);
  }
  return acc;
}

// Rule 2 of the contract: blocks in ascending order, a block being the smaller of the weight's and
// the activation's; a scale that is constant along K is applied once, at the end.
float DotInteger(const DotArgs& args, size_t strip, size_t r, size_t token) {
  const PackedLayout& layout = args.layout;
  const bool weight_blocked = layout.format.blocked();
  const bool x_blocked = args.x->format == ActivationFormat::kBlock;
  const size_t block = x_blocked ? kActivationBlock : layout.block();
  const int8_t* x = args.x->values + token * args.x->value_stride;
  const float* x_scales = args.x->scales + token * args.x->scale_stride;
  float acc = 0.0f;
  for (size_t begin = 0; begin < layout.cols; begin += block) {
    int32_t sum = 0;
    for (size_t k = begin; k < std::min(begin + block, layout.cols); ++k) {
      sum += Integer(layout, args.weights[strip], r, k) * x[k];
    }
    const float w_scale = WeightScale(layout, args.scales[strip], r, begin);
    const float x_scale = x_blocked ? x_scales[begin / kActivationBlock] : x_scales[0];
    const float s = static_cast<float>(sum);
    if (weight_blocked && x_blocked) {
      acc = std::fma(s, w_scale * x_scale, acc);
    } else if (weight_blocked) {
      acc = std::fma(s, w_scale, acc);
    } else if (x_blocked) {
      acc = std::fma(s, x_scale, acc);
    } else {
      return s * (w_scale * x_scale);
    }
  }
  if (weight_blocked && x_blocked) return acc;
  return acc * (weight_blocked ? x_scales[0] : WeightScale(layout, args.scales[strip], r, 0));
}

// Quantizes one group of n values that share a scale; `values` is padded to whole blocks.
bool QuantizeGroup(const float* x, size_t n, int8_t* values, float* scale) {
  uint32_t max_bits = 0;
  for (size_t i = 0; i < n; ++i) max_bits = std::max(max_bits, AbsBits(x[i]));
  const float amax = std::bit_cast<float>(max_bits);
  const bool finite = IsFinite(amax);
  const bool zero = !finite || amax < kMinAmax;
  *scale = zero ? 0.0f : amax / 127.0f;
  const float inverse = 127.0f / amax;
  for (size_t i = 0; i < RoundUp(n, kActivationBlock); ++i) {
    const bool quantize = !zero && i < n;
    values[i] = quantize ? static_cast<int8_t>(std::nearbyint(x[i] * inverse)) : 0;
  }
  return finite;
}

int32_t Offset(const int8_t* values) {
  int32_t sum = 0;
  for (size_t i = 0; i < kActivationBlock; ++i) sum += values[i];
  return -8 * sum;
}

}  // namespace

float Activate(Activation activation, float x) {
  if (std::isnan(x)) return x;
  switch (activation) {
    case Activation::kRelu:
      return x > 0.0f ? x : 0.0f;
    case Activation::kRelu2: {
      const float y = x > 0.0f ? x : 0.0f;
      return y * y;
    }
    case Activation::kGelu:
      return Gelu(x);
    case Activation::kGeluTanh:
      return GeluTanh(x);
    case Activation::kSilu:
      return Silu(x);
    case Activation::kSigmoid:
      return Sigmoid(x);
    case Activation::kIdentity:
      return x;
  }
  return x;
}

bool QuantizeBlocks(const QuantizeArgs& args) {
  bool finite = true;
  for (size_t r = 0; r < args.rows; ++r) {
    const float* x = args.x + r * args.x_stride;
    int8_t* values = args.values + r * args.value_stride;
    for (size_t b = 0; b < DivCeil(args.n, kActivationBlock); ++b) {
      const size_t begin = b * kActivationBlock;
      finite &= QuantizeGroup(x + begin, std::min(args.n - begin, kActivationBlock), values + begin,
                              args.scales + r * args.scale_stride + b);
      args.offsets[r * args.offset_stride + b] = Offset(values + begin);
    }
  }
  return finite;
}

bool QuantizeRow(const float* x, size_t n, int8_t* values, float* scale, int32_t* offsets,
                 int32_t* total_offset) {
  const bool finite = QuantizeGroup(x, n, values, scale);
  *total_offset = 0;
  for (size_t b = 0; b < DivCeil(n, kActivationBlock); ++b) {
    offsets[b] = Offset(values + b * kActivationBlock);
    *total_offset += offsets[b];
  }
  return finite;
}

bool AllFinite(const float* x, size_t n) { return std::all_of(x, x + n, IsFinite); }

void Dot(const DotArgs& args) {
  for (size_t t = 0; t < args.tokens; ++t) {
    for (size_t strip = 0; strip < args.num_strips; ++strip) {
      for (size_t r = 0; r < kStripRows; ++r) {
        float& out = args.out[t * kDotStride + strip * kStripRows + r];
        out = args.layout.format.quantized() ? DotInteger(args, strip, r, args.first_token + t)
                                             : DotFloat(args, strip, r, args.first_token + t);
      }
    }
  }
}

bool Combine(const CombineArgs& args) {
  bool finite = true;
  const auto biased = [](const float* row, const float* bias, size_t i) {
    return bias == nullptr ? row[i] : row[i] + bias[i];
  };
  for (size_t t = 0; t < args.tokens; ++t) {
    for (size_t i = 0; i < args.n; ++i) {
      const float up = biased(args.up + t * args.stride, args.up_bias, i);
      float h;
      if (args.gate == nullptr) {
        h = Activate(args.activation, up);
      } else {
        h = Activate(args.activation, biased(args.gate + t * args.stride, args.gate_bias, i)) * up;
      }
      args.out[t * args.out_stride + i] = h;
      finite &= IsFinite(h);
    }
  }
  return finite;
}

void Finish(const FinishArgs& args) {
  for (size_t t = 0; t < args.tokens; ++t) {
    const float* row = args.row + t * args.row_stride;
    float* y = args.y + t * args.y_stride;
    const bool poisoned = args.poisoned != nullptr && args.poisoned[t] != 0;
    for (size_t i = 0; i < args.n; ++i) {
      float v = args.bias == nullptr ? row[i] : row[i] + args.bias[i];
      if (args.add_to_residual) v = y[i] + v;
      if (poisoned || std::isnan(v)) v = std::bit_cast<float>(kCanonicalNan);
      y[i] = v;
    }
  }
}

const Kernels& ReferenceKernels() {
  constexpr auto kReadsRows = [](WeightFormat, ActivationFormat) -> size_t { return 0; };
  static constexpr Kernels kernels = {"SCALAR",  true,       QuantizeBlocks, QuantizeRow,
                                      AllFinite, kReadsRows, kTileK,         kMaxStrips,
                                      Dot,       Combine,    Finish};
  return kernels;
}

}  // namespace sluice::reference
