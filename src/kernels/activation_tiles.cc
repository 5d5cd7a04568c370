#include "src/kernels/activation_tiles.h"

#include <cstring>

namespace sluice {

size_t TilesBytes(size_t tokens, const ActivationRows& rows) {
  return tokens * rows.offset_stride * TileBlockBytes(1);
}

void PackTile(const ActivationRows& rows, const ActivationTiles& tiles, size_t tile) {
  const TokenTiles cut(tiles.tokens, tiles.height);
  const size_t begin = cut.Begin(tile);
  const size_t tokens = cut.Begin(tile + 1) - begin;
  std::byte* block = tiles.data + begin * tiles.blocks * TileBlockBytes(1);
  for (size_t b = 0; b < tiles.blocks; ++b, block += TileBlockBytes(tokens)) {
    std::byte* scales = block + tokens * kActivationBlock;
    std::byte* offsets = scales + tokens * sizeof(float);
    for (size_t t = 0; t < tokens; ++t) {
      const size_t row = begin + t;
      const int8_t* values = rows.values + row * rows.value_stride + b * kActivationBlock;
      // (Copies of a length known here are moves; others are calls.)
      const auto copy = [&]<size_t kColumns>() {
        for (size_t step = 0; step < kActivationBlock / kColumns; ++step) {
          std::memcpy(block + (step * tokens + t) * kColumns, values + step * kColumns, kColumns);
        }
      };
      tiles.columns == kTileK ? copy.template operator()<kTileK>()
                              : copy.template operator()<2 * kTileK>();
      if (rows.format == ActivationFormat::kBlock) {
        std::memcpy(scales + t * sizeof(float), rows.scales + row * rows.scale_stride + b,
                    sizeof(float));
      }
      std::memcpy(offsets + t * sizeof(int32_t), rows.offsets + row * rows.offset_stride + b,
                  sizeof(int32_t));
    }
  }
}

}  // namespace sluice
