#include "quant/decoder/attention.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "quant/linalg/matrix_product.h"
#include "src/base/thread_pool.h"

namespace sluice {
namespace {

// Query rows of one product: their scores, times a few hundred keys, stay in the second-level
// cache.
constexpr size_t kTileRows = 128;

// Some queries of one head, and the first token of their window.
struct Tile {
  size_t head = 0;
  size_t window = 0;
  size_t first = 0;  // queries, counted from the first token of all
  size_t count = 0;
};

std::vector<Tile> Tiles(const AttentionShape& shape, std::span<const size_t> windows) {
  std::vector<Tile> tiles;
  size_t window = 0;
  for (const size_t length : windows) {
    for (size_t first = 0; first < length; first += kTileRows) {
      for (size_t head = 0; head < shape.heads; ++head) {
        tiles.push_back({head, window, window + first, std::min(kTileRows, length - first)});
      }
    }
    window += length;
  }
  return tiles;
}

// Rows [first, first + count) of one head's columns.
template <class T>
MatrixView<T> HeadRows(MatrixView<T> all, size_t head, size_t head_dim, size_t first,
                       size_t count) {
  return {all.data + first * all.stride + head * head_dim, count, head_dim, all.stride};
}

// One query's scores become shares that add up to 1; those outside [begin, end) are 0.
void Softmax(double cap, std::span<float> scores, size_t begin, size_t end) {
  std::ranges::fill(scores.first(begin), 0.0f);
  std::ranges::fill(scores.subspan(end), 0.0f);
  Eigen::Map<Eigen::ArrayXf> seen(scores.data() + begin, static_cast<Eigen::Index>(end - begin));
  if (cap != 0) {
    const auto c = static_cast<float>(cap);
    seen = (seen / c).tanh() * c;
  }
  seen = (seen - seen.maxCoeff()).exp();
  seen *= static_cast<float>(1 / seen.cast<double>().sum());
}

}  // namespace

RopeTable::RopeTable(std::span<const float> frequencies, size_t positions)
    : half_(frequencies.size()), cosines_(positions * half_), sines_(positions * half_) {
  for (size_t p = 0; p < positions; ++p) {
    for (size_t i = 0; i < half_; ++i) {
      // In float, as the models were trained and run.
      const float angle = static_cast<float>(p) * frequencies[i];
      cosines_[p * half_ + i] = std::cos(angle);
      sines_[p * half_ + i] = std::sin(angle);
    }
  }
}

void RopeTable::Rotate(size_t position, std::span<float> head) const {
  const float* cosines = cosines_.data() + position * half_;
  const float* sines = sines_.data() + position * half_;
  for (size_t i = 0; i < half_; ++i) {
    const float a = head[i];
    const float b = head[i + half_];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half_] = b * cosines[i] + a * sines[i];
  }
}

void Attend(const AttentionShape& shape, std::span<const size_t> windows, MatrixView<const float> q,
            MatrixView<const float> k, MatrixView<const float> v, MatrixView<float> out,
            const ThreadPool* pool) {
  const std::vector<Tile> tiles = Tiles(shape, windows);
  const size_t group = shape.heads / shape.kv_heads;
  ParallelFor(pool, tiles.size(), 1, [&](size_t begin, size_t end) {
    std::vector<float> scratch;
    for (size_t i = begin; i < end; ++i) {
      const Tile& tile = tiles[i];
      const auto rows = [&](auto all, size_t head, size_t first, size_t count) {
        return HeadRows(all, head, shape.head_dim, first, count);
      };
      // The keys that any query of the tile sees.
      const size_t seen = tile.first - tile.window;
      const size_t oldest =
          shape.window == 0 || seen + 1 <= shape.window ? 0 : seen + 1 - shape.window;
      const size_t first_key = tile.window + oldest;
      const size_t keys = tile.first + tile.count - first_key;
      scratch.resize(tile.count * keys);
      const MatrixView<float> scores(scratch.data(), tile.count, keys);
      MultiplyTransposed(rows(q, tile.head, tile.first, tile.count),
                         rows(k, tile.head / group, first_key, keys), {}, scores, nullptr,
                         static_cast<float>(shape.scale));
      for (size_t r = 0; r < tile.count; ++r) {
        const size_t last = tile.first + r + 1 - first_key;
        const size_t from = shape.window == 0 || last <= shape.window ? 0 : last - shape.window;
        Softmax(shape.cap, scores.row(r), from, last);
      }
      Multiply(scores, rows(v, tile.head / group, first_key, keys),
               rows(out, tile.head, tile.first, tile.count));
    }
  });
}

}  // namespace sluice
