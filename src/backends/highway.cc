#include "src/backends/highway.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <format>
#include <initializer_list>

#include "src/backends/carver.h"
#include "src/backends/plan.h"
#include "src/base/status.h"
#include "src/base/thread_pool.h"
#include "src/kernels/activation_tiles.h"
#include "src/kernels/kernels.h"
#include "src/kernels/reference.h"

namespace sluice {
namespace {

// A piece of work makes whole activation blocks of the hidden vector.
static_assert(kTileStrips / 2 * kStripRows % kActivationBlock == 0);

// Results of one dot call, of one token or of many.
constexpr size_t kDotFloats = kMaxDotTokens * kDotStride;
static_assert(kMaxStrips * kStripRows <= kDotFloats);

// What a pass keeps in scratch.
struct Scratch {
  ActivationRows x;
  ActivationTiles x_tiles;  // null data: the kernels read rows
  ActivationRows hidden;
  ActivationTiles hidden_tiles;
  float* hidden_floats = nullptr;  // before they are quantized by row, or for float weights
  uint32_t* poisoned = nullptr;    // [tokens], nonzero: the token's result is NaN
  size_t bytes = 0;
};

ActivationRows CarveRows(Carver& carver, ActivationFormat format, size_t tokens, size_t cols) {
  ActivationRows rows;
  rows.format = format;
  rows.cols = cols;
  if (format == ActivationFormat::kFloat) return rows;
  rows.value_stride = RoundUp(cols, kMaxBlock);
  rows.offset_stride = rows.value_stride / kActivationBlock;
  rows.scale_stride = format == ActivationFormat::kRow ? 1 : rows.offset_stride;
  rows.values = carver.Take<int8_t>(tokens * rows.value_stride);
  rows.scales = carver.Take<float>(tokens * rows.scale_stride);
  rows.offsets = carver.Take<int32_t>(tokens * rows.offset_stride);
  rows.total_offset = carver.Take<int32_t>(tokens);
  return rows;
}

ActivationTiles CarveTiles(Carver& carver, const ActivationRows& rows, size_t tokens,
                           ActivationTiles tiles) {
  tiles.tokens = tokens;
  tiles.blocks = rows.offset_stride;
  if (tiles.height != 0) tiles.data = carver.Take<std::byte>(TilesBytes(tokens, rows));
  return tiles;
}

// Zeros between the last block that holds values and the row's end.
void ZeroTail(const ActivationRows& rows, size_t token) {
  const size_t blocks = DivCeil(rows.cols, kActivationBlock);
  const size_t used = blocks * kActivationBlock;
  std::memset(rows.values + token * rows.value_stride + used, 0, rows.value_stride - used);
  std::memset(rows.offsets + token * rows.offset_stride + blocks, 0,
              (rows.offset_stride - blocks) * sizeof(int32_t));
}

// Calls body(first, count) over all tokens in chunks of at most `chunk_tokens`, of whole tiles
// where there are tiles, and all of about one size: a short last chunk would unpack the weights for
// a few tokens.
template <class Body>
void ForEachChunk(size_t tokens, const ActivationTiles& tiles, size_t chunk_tokens,
                  const Body& body) {
  const TokenTiles cut(tokens, tiles.height == 0 ? 1 : tiles.height);
  const size_t chunk_tiles = std::max<size_t>(1, chunk_tokens / std::max<size_t>(1, tiles.height));
  size_t tile = 0;
  for (size_t chunks = DivCeil(cut.count(), chunk_tiles); chunks != 0; --chunks) {
    const size_t next = tile + DivCeil(cut.count() - tile, chunks);
    body(cut.Begin(tile), cut.Begin(next) - cut.Begin(tile));
    tile = next;
  }
}

// Both passes of a block over one kernel set for few tokens and one for many. The sets agree bit
// for bit; so do all ways of cutting the work.
class KernelRunner final : public BlockRunner {
 public:
  KernelRunner(const BlockView& block, const PerMatrix<KernelPair>& kernels, const ThreadPool* pool,
               std::string_view name)
      : block_(block), kernels_(kernels), pool_(pool), name_(name) {
    for (const Matrix m : kMatrices) {
      if (m == Matrix::kGate && !block.gated) continue;
      const PackedLayout& layout = block.matrices[m].layout;
      weight_bytes_ += layout.weight_bytes() + layout.scale_bytes();
      row_strips_ = std::min(row_strips_, kernels[m].decode->row_strips);
    }
  }

  size_t MaxPassTokens() const override { return 256; }

  // Never less for more tokens, although kernels of many may want rows only and those of few tiles
  // too.
  size_t ScratchBytes(size_t tokens) const override {
    return std::max(Carve(tokens, nullptr).bytes,
                    Carve(std::min(tokens, kBatchTokens - 1), nullptr).bytes);
  }

  void GateUp(const Pass& pass) const override {
    Scratch scratch = Carve(pass.x.rows, pass.scratch.data());
    // For what is not a matrix's own: quantization and the elementwise part.
    const Kernels& kernels = *kernels_[Matrix::kUp].decode;
    scratch.x.floats = pass.x.data;
    scratch.x.float_stride = pass.x.stride;
    const PassPlan plan = PlanFor(pass.x.rows);
    const ThreadPool* pool = plan.parallel ? pool_ : nullptr;
    ParallelFor(pool, pass.x.rows, plan.token_grain, [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t) {
        scratch.poisoned[t] = !PrepareRow(kernels, scratch.x, pass.x.data + t * pass.x.stride, t);
      }
    });
    PackTiles(pool, scratch.x, scratch.x_tiles);
    const size_t units = DivCeil(DivCeil(block_.d_ff, kStripRows), plan.unit_strips);
    ParallelFor(pool, units, plan.unit_grain, [&](size_t begin, size_t end) {
      for (size_t unit = begin; unit < end; ++unit) {
        HiddenUnit(kernels, scratch, unit, pass.x.rows, plan);
      }
    });
    if (block_.hidden != ActivationFormat::kRow) return;
    ParallelFor(pool, pass.x.rows, plan.token_grain, [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t) {
        PrepareRow(kernels, scratch.hidden, scratch.hidden_floats + t * HiddenStride(), t);
      }
    });
  }

  void Down(const Pass& pass) const override {
    const Scratch scratch = Carve(pass.x.rows, pass.scratch.data());
    const Kernels& kernels = KernelsFor(Matrix::kDown, pass.x.rows);
    const size_t strips = block_.matrices[Matrix::kDown].layout.strips();
    const PassPlan plan = PlanFor(pass.x.rows);
    const size_t groups = DivCeil(strips, plan.group_strips);
    const ThreadPool* pool = plan.parallel ? pool_ : nullptr;
    PackTiles(pool, scratch.hidden, scratch.hidden_tiles);
    ParallelFor(pool, groups, plan.group_grain, [&](size_t begin, size_t end) {
      for (size_t group = begin; group < end; ++group) {
        DownStrips(kernels, scratch, pass, group * plan.group_strips, plan);
      }
    });
  }

  std::string Describe() const override {
    // One line whatever the mixture: the targets of all matrices, each named once.
    std::string decode;
    std::string batch;
    const auto add = [](std::string& list, std::string_view target) {
      if (list.find(target) == std::string::npos)
        list += (list.empty() ? "" : "+") + std::string(target);
    };
    for (const Matrix m : kMatrices) {
      if (m == Matrix::kGate && !block_.gated) continue;
      add(decode, kernels_[m].decode->target);
      add(batch, kernels_[m].batch->target);
    }
    const std::string targets =
        decode == batch ? decode
                        : std::format("{}, {} from {} tokens", decode, batch, kBatchTokens);
    return std::format("{} ({}), activations {}/{}", name_, targets, Name(block_.input),
                       Name(block_.hidden));
  }

 private:
  const Kernels& KernelsFor(Matrix m, size_t tokens) const {
    return tokens < kBatchTokens ? *kernels_[m].decode : *kernels_[m].batch;
  }
  PassPlan PlanFor(size_t tokens) const {
    return PlanPass({.tokens = tokens,
                     .threads = ThreadCount(pool_),
                     .d_model = block_.d_model,
                     .d_ff = block_.d_ff,
                     .weight_bytes = weight_bytes_,
                     .level2_bytes = Level2CacheBytes(),
                     .strips = tokens == 1 ? row_strips_ : kTileStrips});
  }
  // The tiles that matrices want of the activations that they share; of height 0: they read rows.
  ActivationTiles TilesFor(std::initializer_list<Matrix> matrices, ActivationFormat x,
                           size_t tokens) const {
    ActivationTiles tiles;
    for (const Matrix m : matrices) {
      if (tokens < 2 || (m == Matrix::kGate && !block_.gated)) continue;
      const Kernels& kernels = KernelsFor(m, tokens);
      const size_t wanted = kernels.tile_height(block_.matrices[m].layout.format, x);
      if (wanted == 0) continue;
      assert(tiles.height == 0 ||
             (tiles.height == wanted && tiles.columns == kernels.tile_columns));
      tiles.height = wanted;
      tiles.columns = kernels.tile_columns;
    }
    return tiles;
  }
  static const ActivationTiles* OrNull(const ActivationTiles& tiles) {
    return tiles.height == 0 ? nullptr : &tiles;
  }
  static void PackTiles(const ThreadPool* pool, const ActivationRows& rows,
                        const ActivationTiles& tiles) {
    if (tiles.height == 0) return;
    ParallelFor(pool, TokenTiles(tiles.tokens, tiles.height).count(), 1,
                [&](size_t begin, size_t end) {
                  for (size_t tile = begin; tile < end; ++tile) PackTile(rows, tiles, tile);
                });
  }
  size_t HiddenStride() const { return RoundUp(block_.d_ff, kActivationBlock); }

  Scratch Carve(size_t tokens, std::byte* base) const {
    Carver carver(base);
    Scratch scratch;
    scratch.poisoned = carver.Take<uint32_t>(tokens);
    scratch.x = CarveRows(carver, block_.input, tokens, block_.d_model);
    scratch.x_tiles = CarveTiles(carver, scratch.x, tokens,
                                 TilesFor({Matrix::kGate, Matrix::kUp}, block_.input, tokens));
    scratch.hidden = CarveRows(carver, block_.hidden, tokens, block_.d_ff);
    scratch.hidden_tiles = CarveTiles(carver, scratch.hidden, tokens,
                                      TilesFor({Matrix::kDown}, block_.hidden, tokens));
    if (block_.hidden != ActivationFormat::kBlock) {
      scratch.hidden_floats = carver.Take<float>(tokens * HiddenStride());
      scratch.hidden.floats = scratch.hidden_floats;
      scratch.hidden.float_stride = HiddenStride();
    }
    scratch.bytes = carver.used();
    return scratch;
  }

  // Quantizes a whole token row as `rows` wants it; returns whether it is finite.
  static bool PrepareRow(const Kernels& kernels, const ActivationRows& rows, const float* x,
                         size_t t) {
    if (rows.format == ActivationFormat::kFloat) return kernels.all_finite(x, rows.cols);
    ZeroTail(rows, t);
    int8_t* values = rows.values + t * rows.value_stride;
    float* scales = rows.scales + t * rows.scale_stride;
    int32_t* offsets = rows.offsets + t * rows.offset_stride;
    if (rows.format == ActivationFormat::kBlock) {
      return kernels.quantize_blocks(
          {.x = x, .n = rows.cols, .values = values, .scales = scales, .offsets = offsets});
    }
    return kernels.quantize_row(x, rows.cols, values, scales, offsets, rows.total_offset + t);
  }

  // Dot products of gate and up for `count` tokens: gate in columns 0…, up right after. One call
  // when their formats agree, so that all strips stream side by side.
  void DotGateUp(const Scratch& scratch, size_t strip, size_t strips, size_t step, size_t tokens,
                 size_t first_token, size_t count, float* out) const {
    DotArgs args;
    args.x = &scratch.x;
    args.tiles = OrNull(scratch.x_tiles);
    args.first_token = first_token;
    args.tokens = count;
    args.out = out;
    if (block_.gated) {
      const PackedMatrixView& gate = block_.matrices[Matrix::kGate];
      AddStrips(args, gate, strip, strips, step);
      if (!(gate.layout == block_.matrices[Matrix::kUp].layout)) {
        KernelsFor(Matrix::kGate, tokens).dot(args);
        args.out += args.num_strips * kStripRows;
        args.num_strips = 0;
      }
    }
    AddStrips(args, block_.matrices[Matrix::kUp], strip, strips, step);
    KernelsFor(Matrix::kUp, tokens).dot(args);
  }

  // Adds `strips` strips, and where the `step` next ones lie that the thread will come to.
  static void AddStrips(DotArgs& args, const PackedMatrixView& matrix, size_t strip, size_t strips,
                        size_t step) {
    args.layout = matrix.layout;
    for (size_t s = strip; s < strip + strips; ++s, ++args.num_strips) {
      args.weights[args.num_strips] = matrix.strip_weights(s);
      args.scales[args.num_strips] = matrix.strip_scales(s);
      const bool more = args.first_token == 0 && s + step < matrix.layout.strips();
      args.next_weights[args.num_strips] = more ? matrix.strip_weights(s + step) : nullptr;
      args.next_scales[args.num_strips] = more ? matrix.strip_scales(s + step) : nullptr;
    }
  }

  // A unit's rows of the hidden vector for all tokens, in the form that down takes.
  void HiddenUnit(const Kernels& kernels, const Scratch& scratch, size_t unit, size_t tokens,
                  const PassPlan& plan) const {
    alignas(kAlignment) float dots[kDotFloats];
    const size_t strip = unit * plan.unit_strips;
    const size_t strips =
        std::min(plan.unit_strips, block_.matrices[Matrix::kUp].layout.strips() - strip);
    ForEachChunk(tokens, scratch.x_tiles, plan.chunk_tokens, [&](size_t first, size_t count) {
      DotGateUp(scratch, strip, strips, plan.unit_strips, tokens, first, count, dots);
      CombineUnit(kernels, scratch, strip * kStripRows, strips, first, count, dots);
    });
  }

  // The hidden vector's rows from `row` on, of `tokens` tokens from `token` on. Overwrites `dots`.
  void CombineUnit(const Kernels& kernels, const Scratch& scratch, size_t row, size_t strips,
                   size_t token, size_t tokens, float* dots) const {
    const auto bias = [&](Matrix m) {
      const float* b = block_.matrices[m].bias;
      return b == nullptr ? nullptr : b + row;
    };
    const bool quantize_now = block_.hidden == ActivationFormat::kBlock;
    CombineArgs args;
    args.activation = block_.activation;
    args.gate = block_.gated ? dots : nullptr;
    args.gate_bias = block_.gated ? bias(Matrix::kGate) : nullptr;
    args.up = block_.gated ? dots + strips * kStripRows : dots;
    args.up_bias = bias(Matrix::kUp);
    args.out = quantize_now ? dots : scratch.hidden_floats + token * HiddenStride() + row;
    args.n = std::min(strips * kStripRows, block_.d_ff - row);
    args.tokens = tokens;
    args.stride = kDotStride;
    args.out_stride = quantize_now ? kDotStride : HiddenStride();
    if (!kernels.combine(args)) {
      for (size_t t = 0; t < tokens; ++t) {
        if (kernels.all_finite(args.out + t * args.out_stride, args.n)) continue;
        // Several threads may find the same token; all write the same.
        std::atomic_ref(scratch.poisoned[token + t]).store(1, std::memory_order_relaxed);
      }
    }
    if (!quantize_now) return;
    const ActivationRows& rows = scratch.hidden;
    kernels.quantize_blocks(
        {.x = dots,
         .n = args.n,
         .values = rows.values + token * rows.value_stride + row,
         .scales = rows.scales + token * rows.scale_stride + row / kActivationBlock,
         .offsets = rows.offsets + token * rows.offset_stride + row / kActivationBlock,
         .rows = tokens,
         .x_stride = kDotStride,
         .value_stride = rows.value_stride,
         .scale_stride = rows.scale_stride,
         .offset_stride = rows.offset_stride});
    if (row + args.n < block_.d_ff) return;
    for (size_t t = token; t < token + tokens; ++t) ZeroTail(rows, t);
  }

  // A group of down's strips for all tokens, from strip `strip` on.
  void DownStrips(const Kernels& kernels, const Scratch& scratch, const Pass& pass, size_t strip,
                  const PassPlan& plan) const {
    alignas(kAlignment) float dots[kDotFloats];
    const PackedMatrixView& down = block_.matrices[Matrix::kDown];
    const size_t strips = std::min(plan.group_strips, down.layout.strips() - strip);
    const size_t row = strip * kStripRows;
    DotArgs args;
    args.x = &scratch.hidden;
    args.tiles = OrNull(scratch.hidden_tiles);
    args.out = dots;
    FinishArgs finish;
    finish.bias = down.bias == nullptr ? nullptr : down.bias + row;
    finish.n = std::min(strips * kStripRows, block_.d_model - row);
    finish.add_to_residual = pass.add_to_residual;
    finish.row = dots;
    finish.row_stride = kDotStride;
    finish.y_stride = pass.y.stride;
    ForEachChunk(pass.x.rows, scratch.hidden_tiles, plan.chunk_tokens,
                 [&](size_t first, size_t count) {
                   args.first_token = first;
                   args.tokens = count;
                   args.num_strips = 0;
                   AddStrips(args, down, strip, strips, plan.group_strips);
                   kernels.dot(args);
                   finish.y = pass.y.data + first * pass.y.stride + row;
                   finish.poisoned = scratch.poisoned + first;
                   finish.tokens = count;
                   kernels.finish(finish);
                 });
  }

  BlockView block_;
  PerMatrix<KernelPair> kernels_;
  const ThreadPool* pool_;
  std::string_view name_;
  size_t weight_bytes_ = 0;
  size_t row_strips_ = kMaxStrips;  // that all matrices' kernels take for one token
};

}  // namespace

Expected<std::unique_ptr<BlockRunner>> CreateHighwayRunner(const BlockView& block,
                                                           const RunnerOptions& options) {
  PerMatrix<KernelPair> kernels;
  for (const Matrix m : kMatrices) {
    SLUICE_ASSIGN(kernels[m], FindKernels(options.target, block.matrices[m].layout.format));
  }
  return std::make_unique<KernelRunner>(block, kernels, options.pool, "highway");
}

Expected<std::unique_ptr<BlockRunner>> CreateReferenceRunner(const BlockView& block,
                                                             const RunnerOptions& options) {
  if (!options.target.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "the reference backend is scalar: it has no target {}",
                options.target);
  }
  const Kernels& kernels = reference::ReferenceKernels();
  const KernelPair pair = {&kernels, &kernels};
  return std::make_unique<KernelRunner>(block, PerMatrix<KernelPair>{{pair, pair, pair}},
                                        options.pool, "reference");
}

}  // namespace sluice
