#include "quant/quantizer/fit_stream.h"

#include <algorithm>
#include <utility>

#include "quant/decoder/float_block.h"
#include "src/base/aligned_buffer.h"
#include "src/base/status.h"

namespace sluice {
namespace {

// Tokens that go through a block at a time. Few tokens make small pieces, so that some are held
// out.
constexpr size_t kMaxPiece = 1024;
constexpr size_t kMinPiece = 16;
constexpr size_t kPieces = 48;
// Of every so many pieces the last is held out.
constexpr size_t kHeldOutPart = 16;

static_assert(kMaxPiece <= BlockFitter::kMaxTokens);

Purpose PurposeOfPiece(size_t piece, size_t pieces) {
  if (pieces == 1) return Purpose::kBoth;
  const bool last = piece % kHeldOutPart == kHeldOutPart - 1;
  return last || (pieces < kHeldOutPart && piece == pieces - 1) ? Purpose::kHeldOut : Purpose::kFit;
}

MatrixView<float> Room(std::vector<float>& storage, size_t rows, size_t cols) {
  if (storage.size() < rows * cols) storage.resize(rows * cols);
  return {storage.data(), rows, cols};
}

// to ← from + part · (to − from).
void MoveToward(MatrixView<const float> from, float part, MatrixView<float> to) {
  for (size_t r = 0; r < to.rows; ++r) {
    std::ranges::transform(from.row(r), to.row(r), to.row(r).begin(),
                           [part](float a, float b) { return a + part * (b - a); });
  }
}

}  // namespace

// Consecutive rows of both streams.
struct StreamFitter::Piece {
  MatrixView<float> exact;
  MatrixView<float> rounded;
  Purpose purpose = Purpose::kFit;
  std::span<float> gains;  // BlockFitter's; empty where the block's output is not normed
};

// What some tokens of the rounded stream give the block, [t, d_model], and their gains.
struct StreamFitter::Sample {
  std::vector<float> x;
  std::vector<float> gains;
};

StreamFitter::StreamFitter(const Decoder& decoder, const Tokens& tokens,
                           const StreamOptions& options, const ThreadPool* pool)
    : decoder_(decoder), tokens_(tokens), options_(options), pool_(pool) {}

Expected<StreamFitter> StreamFitter::Create(const Decoder& decoder, const Tokens& tokens,
                                            const StreamOptions& options, const ThreadPool* pool) {
  StreamFitter fitter(decoder, tokens, options, pool);
  const size_t n = tokens.ids.size();
  const size_t d = decoder.d_model();
  fitter.streams_.exact.resize(n * d);
  SLUICE_TRY(decoder.Embed(tokens.ids, {fitter.streams_.exact.data(), n, d}));
  fitter.streams_.rounded = fitter.streams_.exact;
  return fitter;
}

Status StreamFitter::Resume(size_t next, Streams streams) {
  const size_t size = tokens_.ids.size() * decoder_.d_model();
  if (streams.exact.size() != size || streams.rounded.size() != size) {
    return Fail(ErrorCode::kInvalidArgument, "the streams have {} and {} values, {} expected",
                streams.exact.size(), streams.rounded.size(), size);
  }
  next_ = next;
  streams_ = std::move(streams);
  return {};
}

Expected<DecoderLayer> StreamFitter::Attend() {
  SLUICE_ASSIGN(DecoderLayer layer, decoder_.Layer(next_));
  const size_t n = tokens_.ids.size();
  for (std::vector<float>* stream : {&streams_.exact, &streams_.rounded}) {
    layer.AddAttention(tokens_.windows, {stream->data(), n, decoder_.d_model()}, pool_);
  }
  ++next_;
  return layer;
}

size_t StreamFitter::PieceSize() const {
  return std::clamp(DivCeil(tokens_.ids.size(), kPieces), kMinPiece, kMaxPiece);
}

template <class Fn>
void StreamFitter::ForPieces(Fn use) {
  const size_t n = tokens_.ids.size();
  const size_t d = decoder_.d_model();
  const size_t size = PieceSize();
  const size_t pieces = DivCeil(n, size);
  for (size_t i = 0; i < pieces; ++i) {
    const size_t begin = i * size;
    const size_t count = std::min(size, n - begin);
    use(Piece{{streams_.exact.data() + begin * d, count, d},
              {streams_.rounded.data() + begin * d, count, d},
              PurposeOfPiece(i, pieces),
              gains_.empty() ? std::span<float>() : std::span(gains_).subspan(begin, count)});
  }
}

void StreamFitter::RunExact(const FfnWeights& weights, MatrixView<const float> x,
                            MatrixView<float> y) {
  const size_t d_ff = weights.matrices[Matrix::kUp].rows;
  const MatrixView<float> hidden = Room(hidden_, x.rows, d_ff);
  BlockHidden(weights, x, hidden, Room(scratch_, x.rows, d_ff), pool_);
  BlockOutput(weights, hidden, y, pool_);
}

// How much of each token's error the norm after the block lets through.
void StreamFitter::NoteGains(const DecoderLayer& layer, const FfnWeights& weights,
                             MatrixView<const float> x, std::span<float> gains) {
  const MatrixView<float> y = Room(y_, x.rows, x.cols);
  RunExact(weights, x, y);
  for (size_t r = 0; r < x.rows; ++r) gains[r] = layer.OutputGain(y.row(r));
}

StreamFitter::Sample StreamFitter::SampleInputs(const DecoderLayer& layer, Purpose purpose) {
  const size_t d = decoder_.d_model();
  const size_t n = tokens_.ids.size();
  const size_t pieces = DivCeil(n, PieceSize());
  const auto purpose_of = [&](size_t token) { return PurposeOfPiece(token / PieceSize(), pieces); };
  Sample sample;
  std::vector<float> stream;
  for (const size_t t : SampleTokens(n, kRescaleTokens, purpose, purpose_of)) {
    const auto row = std::span(streams_.rounded).subspan(t * d, d);
    stream.insert(stream.end(), row.begin(), row.end());
    if (!gains_.empty()) sample.gains.push_back(gains_[t]);
  }
  sample.x.resize(stream.size());
  const size_t rows = stream.size() / d;
  layer.BlockInput({stream.data(), rows, d}, {sample.x.data(), rows, d}, pool_);
  return sample;
}

Expected<BlockFit> StreamFitter::Quantize(const FfnWeights& weights,
                                          const PerMatrix<WeightFormat>& formats,
                                          const BlockActivations& activations) {
  const size_t d = decoder_.d_model();
  SLUICE_ASSIGN(const DecoderLayer layer, Attend());
  BlockFitter fitter(weights, formats, activations, options_.fit, pool_);
  gains_.resize(layer.norms_output() ? tokens_.ids.size() : 0);
  ForPieces([&](const Piece& piece) {
    const size_t rows = piece.exact.rows;
    const MatrixView<float> wanted = Room(x_exact_, rows, d);
    const MatrixView<float> x = Room(x_, rows, d);
    layer.BlockInput(piece.exact, wanted, pool_);
    layer.BlockInput(piece.rounded, x, pool_);
    if (!piece.gains.empty()) NoteGains(layer, weights, x, piece.gains);
    MoveToward(x, options_.move, wanted);
    fitter.AddInputs(x, wanted, piece.purpose, piece.gains);
  });
  const Sample fit = SampleInputs(layer, Purpose::kFit);
  const Sample held_out = SampleInputs(layer, Purpose::kHeldOut);
  SLUICE_TRY(fitter.Rescale({{fit.x.data(), fit.x.size() / d, d},
                             {held_out.x.data(), held_out.x.size() / d, d},
                             held_out.gains}));
  SLUICE_TRY(fitter.FitInput());
  ForPieces([&](const Piece& piece) {
    const size_t rows = piece.exact.rows;
    const MatrixView<float> x = Room(x_, rows, d);
    const MatrixView<float> y_exact = Room(y_exact_, rows, d);
    const MatrixView<float> y = Room(y_, rows, d);
    layer.BlockInput(piece.exact, x, pool_);
    RunExact(weights, x, y_exact);
    layer.BlockInput(piece.rounded, x, pool_);
    RunExact(weights, x, y);
    MoveToward(y_exact, 1 - options_.move, y);
    layer.MoveOutput(piece.exact, piece.rounded, options_.repair, options_.most_repair, y, pool_);
    fitter.AddHidden(x, y, piece.purpose, piece.gains);
    layer.AddBlockOutput(y_exact, piece.exact, pool_);
  });
  SLUICE_TRY(fitter.FitHidden());
  ForPieces([&](const Piece& piece) {
    const MatrixView<float> x = Room(x_, piece.rounded.rows, d);
    const MatrixView<float> y = Room(y_, piece.rounded.rows, d);
    layer.BlockInput(piece.rounded, x, pool_);
    fitter.Forward(x, y);
    layer.AddBlockOutput(y, piece.rounded, pool_);
  });
  return std::move(fitter).Take();
}

Status StreamFitter::Skip(const FfnWeights& weights) {
  SLUICE_ASSIGN(const DecoderLayer layer, Attend());
  const size_t d = decoder_.d_model();
  ForPieces([&](const Piece& piece) {
    for (const MatrixView<float> stream : {piece.exact, piece.rounded}) {
      const MatrixView<float> x = Room(x_, stream.rows, d);
      const MatrixView<float> y = Room(y_, stream.rows, d);
      layer.BlockInput(stream, x, pool_);
      RunExact(weights, x, y);
      layer.AddBlockOutput(y, stream, pool_);
    }
  });
  return {};
}

}  // namespace sluice
