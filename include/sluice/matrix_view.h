// A non-owning, row-major view of a matrix.
#ifndef SLUICE_MATRIX_VIEW_H_
#define SLUICE_MATRIX_VIEW_H_

#include <cstddef>
#include <span>
#include <type_traits>

namespace sluice {

// Row `r` starts at `data + r * stride`; stride >= cols, in elements. What lies between a row's end
// and the next row is never read or written.
template <class T>
struct MatrixView {
  T* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
  size_t stride = 0;

  constexpr MatrixView() = default;
  constexpr MatrixView(T* data_, size_t rows_, size_t cols_, size_t stride_)
      : data(data_), rows(rows_), cols(cols_), stride(stride_) {}
  constexpr MatrixView(T* data_, size_t rows_, size_t cols_)
      : MatrixView(data_, rows_, cols_, cols_) {}
  // A mutable view converts to a constant one.
  template <class U>
    requires(std::is_const_v<T> && std::is_same_v<std::remove_const_t<T>, U>)
  constexpr MatrixView(MatrixView<U> o)  // NOLINT(google-explicit-constructor)
      : MatrixView(o.data, o.rows, o.cols, o.stride) {}

  constexpr std::span<T> row(size_t r) const { return {data + r * stride, cols}; }
  // Rows [first, first + count).
  constexpr MatrixView Rows(size_t first, size_t count) const {
    return {data + first * stride, count, cols, stride};
  }
};

}  // namespace sluice

#endif  // SLUICE_MATRIX_VIEW_H_
