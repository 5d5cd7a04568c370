#include "quant/analysis/capture.h"

#include <Eigen/Core>
#include <algorithm>
#include <cstring>
#include <format>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "quant/analysis/calibration.h"
#include "quant/decoder/float_block.h"
#include "src/base/status.h"
#include "src/base/thread_pool.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

// Second moment and maximum of each column of a matrix that comes by in pieces.
class ChannelSums {
 public:
  explicit ChannelSums(size_t channels) : squares_(channels), max_abs_(channels) {}

  void Add(MatrixView<const float> x, const ThreadPool* pool) {
    constexpr size_t kTaskChannels = 128;
    ParallelFor(pool, x.cols, kTaskChannels, [&](size_t begin, size_t end) {
      const auto n = static_cast<Eigen::Index>(end - begin);
      Eigen::Map<Eigen::ArrayXd> squares(squares_.data() + begin, n);
      Eigen::Map<Eigen::ArrayXf> max_abs(max_abs_.data() + begin, n);
      for (size_t r = 0; r < x.rows; ++r) {
        const Eigen::Map<const Eigen::ArrayXf> row(x.row(r).data() + begin, n);
        squares += row.cast<double>().square();
        max_abs = max_abs.max(row.abs());
      }
    });
    rows_ += x.rows;
  }

  std::vector<float> SecondMoments() const {
    std::vector<float> moments;
    moments.reserve(squares_.size());
    for (const double s : squares_) {
      moments.push_back(static_cast<float>(s / static_cast<double>(rows_)));
    }
    return moments;
  }
  const std::vector<float>& MaxAbs() const { return max_abs_; }

 private:
  size_t rows_ = 0;
  std::vector<double> squares_;
  std::vector<float> max_abs_;
};

// `count` of the numbers below `all`, ascending, every choice equally likely: Knuth's algorithm S
// (The Art of Computer Programming, volume 2, 3.4.2), on a generator that is the same everywhere.
std::vector<int64_t> Choose(size_t count, size_t all, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < all && chosen.size() < count; ++i) {
    const double share = (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53;
    if (share * static_cast<double>(all - i) < static_cast<double>(count - chosen.size())) {
      chosen.push_back(static_cast<int64_t>(i));
    }
  }
  return chosen;
}

class CaptureJob {
 public:
  CaptureJob(const Decoder& decoder, const Tokens& tokens, const CaptureOptions& options)
      : decoder_(decoder),
        tokens_(tokens),
        options_(options),
        positions_(Choose(options.sample, tokens.ids.size(), options.seed)) {}

  Status Run(const std::string& path) {
    const std::map<std::string, std::string> metadata = {
        {"sluice.capture", "1"},
        {"model", decoder_.checkpoint().path()},
        {"source", tokens_.source},
        {"tokens", std::to_string(tokens_.ids.size())}};
    SLUICE_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::Create(path, Tensors(), metadata));
    SLUICE_TRY(writer.Add(std::as_bytes(std::span(positions_))));
    std::vector<float> storage(tokens_.ids.size() * decoder_.d_model());
    const MatrixView<float> stream(storage.data(), tokens_.ids.size(), decoder_.d_model());
    SLUICE_TRY(decoder_.Embed(tokens_.ids, stream));
    for (size_t layer = 0; layer < decoder_.layers(); ++layer) {
      SLUICE_TRY(AddLayer(layer, stream, writer));
      if (options_.progress) options_.progress(layer + 1, decoder_.layers());
    }
    return writer.Finish();
  }

 private:
  // In the order in which AddLayer writes them.
  std::vector<SafetensorsTensor> Tensors() const {
    const uint64_t d = decoder_.d_model();
    std::vector<SafetensorsTensor> tensors = {{"positions", "I64", {positions_.size()}}};
    for (const SourceLayer& layer : decoder_.checkpoint().layers()) {
      const std::string input = Calibration::TensorName(layer.layer);
      const std::string hidden = std::format("model.layers.{}.mlp.hidden", layer.layer);
      tensors.push_back({input, "F32", {positions_.size(), d}});
      tensors.push_back({input + ".second_moment", "F32", {d}});
      tensors.push_back({input + ".max_abs", "F32", {d}});
      tensors.push_back({hidden + ".second_moment", "F32", {layer.d_ff}});
      tensors.push_back({hidden + ".max_abs", "F32", {layer.d_ff}});
    }
    return tensors;
  }

  Status AddLayer(size_t index, MatrixView<float> stream, SafetensorsWriter& writer) const {
    SLUICE_ASSIGN(const DecoderLayer layer, decoder_.Layer(index));
    SLUICE_ASSIGN(const FfnWeights weights, decoder_.checkpoint().Load(index));
    ChannelSums input(stream.cols);
    ChannelSums hidden(weights.matrices[Matrix::kUp].rows);
    std::vector<float> sample;
    sample.reserve(positions_.size() * stream.cols);
    layer.AddAttention(tokens_.windows, stream, options_.pool);
    AddFloatBlock(layer, weights, stream, options_.pool,
                  [&](size_t first, MatrixView<const float> x, MatrixView<const float> h) {
                    input.Add(x, options_.pool);
                    hidden.Add(h, options_.pool);
                    Sample(first, x, sample);
                  });
    for (const std::vector<float>& values :
         {sample, input.SecondMoments(), input.MaxAbs(), hidden.SecondMoments(), hidden.MaxAbs()}) {
      SLUICE_TRY(writer.Add(std::as_bytes(std::span(values))));
    }
    return {};
  }

  // Those of the chosen rows that are among x, which begins at row `first` of all.
  void Sample(size_t first, MatrixView<const float> x, std::vector<float>& sample) const {
    const auto begin = std::ranges::lower_bound(positions_, static_cast<int64_t>(first));
    const auto end = std::ranges::lower_bound(positions_, static_cast<int64_t>(first + x.rows));
    for (auto p = begin; p != end; ++p) {
      const std::span<const float> row = x.row(static_cast<size_t>(*p) - first);
      sample.insert(sample.end(), row.begin(), row.end());
    }
  }

  const Decoder& decoder_;
  const Tokens& tokens_;
  const CaptureOptions& options_;
  const std::vector<int64_t> positions_;
};

}  // namespace

Status Capture(const Decoder& decoder, const Tokens& tokens, const CaptureOptions& options,
               const std::string& path) {
  return CaptureJob(decoder, tokens, options).Run(path);
}

}  // namespace sluice
