// Inputs as real blocks have them: correlated, of unequal size, with a common part.
#ifndef SLUICE_TESTS_SUPPORT_CORRELATED_H_
#define SLUICE_TESTS_SUPPORT_CORRELATED_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "sluice/matrix_view.h"
#include "tests/support/seed.h"

namespace sluice::test {

// Row-major values that own their memory.
struct FloatMatrix {
  size_t rows = 0;
  size_t cols = 0;
  std::vector<float> values;

  FloatMatrix(size_t r, size_t c) : rows(r), cols(c), values(r * c) {}
  float& operator()(size_t r, size_t c) { return values[r * cols + c]; }
  float operator()(size_t r, size_t c) const { return values[r * cols + c]; }
  MatrixView<const float> view() const { return {values.data(), rows, cols}; }
};

inline FloatMatrix NormalMatrix(Random& random, size_t rows, size_t cols, float deviation = 1) {
  FloatMatrix m(rows, cols);
  for (float& v : m.values) v = random.Normal(deviation);
  return m;
}

// x = z·A with few columns of z that matter, so that channels can make up for each other's errors.
// Several calls with the same `mixing` give tokens of one distribution.
class CorrelatedInputs {
 public:
  CorrelatedInputs(Random& random, size_t n)
      : random_(random), mixing_(NormalMatrix(random, Rank(n), n)), size_(n) {
    for (float& s : size_) s = std::exp(random.Normal(0.7f));
  }

  FloatMatrix Draw(size_t tokens) {
    const FloatMatrix z = NormalMatrix(random_, tokens, mixing_.rows);
    FloatMatrix x(tokens, mixing_.cols);
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t c = 0; c < x.cols; ++c) {
        float sum = 0.2f * random_.Normal();
        for (size_t k = 0; k < z.cols; ++k) sum += z(t, k) * mixing_(k, c) / std::sqrt(z.cols);
        x(t, c) = sum * size_[c];
      }
    }
    return x;
  }

 private:
  static size_t Rank(size_t n) { return std::max<size_t>(1, n / 4); }
  Random& random_;
  FloatMatrix mixing_;
  std::vector<float> size_;
};

}  // namespace sluice::test

#endif  // SLUICE_TESTS_SUPPORT_CORRELATED_H_
