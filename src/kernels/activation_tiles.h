// How activation rows are laid out for the dot kernels of many tokens (ActivationTiles).
#ifndef SLUICE_SRC_KERNELS_ACTIVATION_TILES_H_
#define SLUICE_SRC_KERNELS_ACTIVATION_TILES_H_

#include <algorithm>
#include <cstddef>

#include "src/kernels/kernels.h"

namespace sluice {

// `tokens` tokens cut into as few tiles of at most `height` as there can be, all of one height or
// one less, the higher ones first.
class TokenTiles {
 public:
  TokenTiles(size_t tokens, size_t height)
      : count_(DivCeil(tokens, height)),
        low_(tokens / std::max<size_t>(1, count_)),
        high_count_(tokens - low_ * count_) {}

  size_t count() const { return count_; }
  size_t Begin(size_t tile) const { return tile * low_ + std::min(tile, high_count_); }
  // The tile that begins at `token`, or ends there.
  size_t IndexOf(size_t token) const {
    const size_t in_high = high_count_ * (low_ + 1);
    return token <= in_high ? token / (low_ + 1) : high_count_ + (token - in_high) / low_;
  }

 private:
  size_t count_;
  size_t low_;         // the height of the lower tiles
  size_t high_count_;  // tiles that have one more
};

// Bytes of ActivationTiles::data for so many quantized rows.
size_t TilesBytes(size_t tokens, const ActivationRows& rows);

// Lays out one tile's tokens, from rows that are quantized.
void PackTile(const ActivationRows& rows, const ActivationTiles& tiles, size_t tile);

}  // namespace sluice

#endif  // SLUICE_SRC_KERNELS_ACTIVATION_TILES_H_
