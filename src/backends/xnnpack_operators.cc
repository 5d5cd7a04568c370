#include "src/backends/xnnpack_operators.h"

#include <algorithm>
#include <limits>

#include "src/base/status.h"

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string_view Describe(xnn_status status) {
  switch (status) {
    case xnn_status_success:
      return "success";
    case xnn_status_uninitialized:
      return "not initialized";
    case xnn_status_invalid_parameter:
      return "invalid parameter";
    case xnn_status_invalid_state:
      return "invalid state";
    case xnn_status_unsupported_parameter:
      return "unsupported parameter";
    case xnn_status_unsupported_hardware:
      return "unsupported hardware";
    case xnn_status_out_of_memory:
      return "out of memory";
    default:
      return "an unknown error";
  }
}

bool Ok(xnn_status status) { return status == xnn_status_success; }

}  // namespace

std::string_view Name(XnnKernel kernel) {
  switch (kernel) {
    case XnnKernel::kF32:
      return "f32";
    case XnnKernel::kQc8w:
      return "qd8_f32_qc8w";
    case XnnKernel::kQc4w:
      return "qd8_f32_qc4w";
    case XnnKernel::kQb4w:
      return "qd8_f32_qb4w";
  }
  return "";
}

Status InitializeXnnpack() {
  static const xnn_status status = xnn_initialize(/*allocator=*/nullptr);
  if (Ok(status)) return {};
  return Fail(ErrorCode::kUnsupported, "xnnpack: XNNPACK cannot start on this machine: {}",
              Describe(status));
}

Expected<XnnConvert> XnnConvert::Create() {
  XnnConvert convert;
  xnn_operator_t op = nullptr;
  const xnn_status status = xnn_create_convert_nc_f32_qd8(/*flags=*/0, &op);
  if (!Ok(status)) {
    return Fail(ErrorCode::kUnsupported, "xnnpack: cannot create the conversion to qd8: {}",
                Describe(status));
  }
  convert.op_.reset(op);
  return convert;
}

bool XnnConvert::Run(const XnnRows& rows, size_t tokens, pthreadpool_t pool) const {
  // The padding is converted too: the range of a row always includes 0, so it changes no scale.
  const bool done =
      Ok(xnn_reshape_convert_nc_f32_qd8(op_.get(), tokens, rows.stride, rows.stride, rows.stride,
                                        pool)) &&
      Ok(xnn_setup_convert_nc_f32_qd8(op_.get(), rows.floats, rows.values, rows.params)) &&
      Ok(xnn_run_operator(op_.get(), pool));
  if (done) std::fill_n(rows.params + tokens, kXnnExtraParams, rows.params[tokens - 1]);
  return done;
}

Expected<XnnMatrix> XnnMatrix::Create(const XnnWeights& weights, size_t stride) {
  constexpr uint8_t kZeroPoint = 8;
  const XnnWeights& w = weights;
  xnn_operator_t op = nullptr;
  xnn_status status = xnn_status_unsupported_parameter;
  switch (w.kernel) {
    case XnnKernel::kF32:
      status = xnn_create_fully_connected_nc_f32(w.cols, w.rows, stride, w.rows, w.floats.data(),
                                                 /*bias=*/nullptr, -kInfinity, kInfinity,
                                                 /*flags=*/0, nullptr, nullptr, &op);
      break;
    case XnnKernel::kQc8w:
      status = xnn_create_fully_connected_nc_qd8_f32_qc8w(
          w.cols, w.rows, stride, w.rows, w.scales.data(), w.integers.data(), /*bias=*/nullptr,
          -kInfinity, kInfinity, /*flags=*/0, nullptr, nullptr, &op);
      break;
    case XnnKernel::kQc4w:
      status = xnn_create_fully_connected_nc_qd8_f32_qc4w(
          w.cols, w.rows, stride, w.rows, kZeroPoint, w.scales.data(), w.nibbles.data(),
          /*bias=*/nullptr, -kInfinity, kInfinity, /*flags=*/0, nullptr, nullptr, &op);
      break;
    case XnnKernel::kQb4w:
      status = xnn_create_fully_connected_nc_qd8_f32_qb4w(
          w.cols, w.rows, stride, w.rows, w.block, kZeroPoint, w.block_scales.data(),
          w.nibbles.data(), /*bias=*/nullptr, -kInfinity, kInfinity, /*flags=*/0, nullptr, nullptr,
          &op);
      break;
  }
  if (!Ok(status)) {
    return Fail(ErrorCode::kUnsupported, "XNNPACK cannot create its {} operator for [{}, {}]: {}",
                Name(w.kernel), w.rows, w.cols, Describe(status));
  }
  XnnMatrix matrix;
  matrix.kernel_ = w.kernel;
  matrix.op_.reset(op);
  return matrix;
}

bool XnnMatrix::Run(const XnnRows& x, size_t tokens, float* y, pthreadpool_t pool) const {
  xnn_operator_t op = op_.get();
  bool ready = false;
  switch (kernel_) {
    case XnnKernel::kF32:
      ready = Ok(xnn_reshape_fully_connected_nc_f32(op, tokens, pool)) &&
              Ok(xnn_setup_fully_connected_nc_f32(op, x.floats, y));
      break;
    case XnnKernel::kQc8w:
      ready = Ok(xnn_reshape_fully_connected_nc_qd8_f32_qc8w(op, tokens, pool)) &&
              Ok(xnn_setup_fully_connected_nc_qd8_f32_qc8w(op, x.values, y, x.params));
      break;
    case XnnKernel::kQc4w:
      ready = Ok(xnn_reshape_fully_connected_nc_qd8_f32_qc4w(op, tokens, pool)) &&
              Ok(xnn_setup_fully_connected_nc_qd8_f32_qc4w(op, x.values, y, x.params));
      break;
    case XnnKernel::kQb4w:
      ready = Ok(xnn_reshape_fully_connected_nc_qd8_f32_qb4w(op, tokens, pool)) &&
              Ok(xnn_setup_fully_connected_nc_qd8_f32_qb4w(op, x.values, y, x.params));
      break;
  }
  return ready && Ok(xnn_run_operator(op, pool));
}

}  // namespace sluice
