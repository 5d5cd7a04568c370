// Models of a few thousand weights, run whole.
#ifndef SLUICE_TESTS_QUANT_DECODER_RUN_DECODER_H_
#define SLUICE_TESTS_QUANT_DECODER_RUN_DECODER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/decoder/decoder.h"
#include "quant/decoder/float_block.h"
#include "quant/decoder/tokens.h"
#include "src/file/safetensors.h"
#include "tests/support/temp_dir.h"

namespace sluice::test {

// The fixtures that tests/data/decoder/make_fixtures.py makes.
inline constexpr std::string_view kFixtures[] = {
    "llama", "llama_tied_biased", "llama3_scaled", "llama_linear", "mistral_sliding",
    "qwen2", "qwen2_sliding",     "qwen3",         "gemma",        "gemma2",
    "gemma3"};

inline std::string FixturePath(std::string_view name) {
  return std::string(SLUICE_TEST_DATA) + "/decoder/" + std::string(name) + ".safetensors";
}

inline SafetensorsFile OpenFixture(std::string_view name) {
  return SafetensorsFile::Open(FixturePath(name)).value();
}

template <class T>
std::vector<T> ValuesOf(const SafetensorsEntry& entry) {
  std::vector<T> values(entry.bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry.bytes.data(), entry.bytes.size());
  return values;
}

// The fixture as a Decoder; its configuration, which lies in its metadata, goes to `dir`.
inline Expected<Decoder> OpenDecoder(std::string_view name, const TempDir& dir) {
  WriteBytes(dir.File("config.json"), OpenFixture(name).metadata().at("config"));
  return Decoder::Open(FixturePath(name), dir.File("config.json"));
}

// The stream after the last layer, [ids, d_model].
inline std::vector<float> RunLayers(const Decoder& decoder, const Tokens& tokens,
                                    const ThreadPool* pool) {
  const size_t n = tokens.ids.size();
  std::vector<float> stream(n * decoder.d_model());
  const MatrixView<float> rows(stream.data(), n, decoder.d_model());
  EXPECT_TRUE(decoder.Embed(tokens.ids, rows));
  for (size_t i = 0; i < decoder.layers(); ++i) {
    const Expected<DecoderLayer> layer = decoder.Layer(i);
    const Expected<FfnWeights> block = decoder.checkpoint().Load(i);
    EXPECT_TRUE(layer && block);
    layer->AddAttention(tokens.windows, rows, pool);
    AddFloatBlock(*layer, *block, rows, pool);
  }
  return stream;
}

// [rows, vocabulary], in double precision from the normed stream on.
inline std::vector<double> Logits(const Decoder& decoder, std::span<const float> stream) {
  const size_t n = stream.size() / decoder.d_model();
  std::vector<float> normed(stream.size());
  const MatrixView<float> x(normed.data(), n, decoder.d_model());
  decoder.FinalNorm({stream.data(), n, decoder.d_model()}, x, nullptr);
  std::vector<double> logits(n * decoder.vocabulary());
  EXPECT_TRUE(decoder.ForVocabulary([&](size_t first, MatrixView<const float> weights) {
    for (size_t r = 0; r < n; ++r) {
      for (size_t t = 0; t < weights.rows; ++t) {
        double sum = 0;
        for (size_t c = 0; c < x.cols; ++c) sum += double{x.row(r)[c]} * weights.row(t)[c];
        auto capped = static_cast<float>(sum);
        decoder.CapLogits(std::span(&capped, 1));
        logits[r * decoder.vocabulary() + first + t] = capped;
      }
    }
  }));
  return logits;
}

// ‖a − b‖ / ‖b‖.
template <class A, class B>
double RelativeError(const std::vector<A>& a, const std::vector<B>& b) {
  EXPECT_EQ(a.size(), b.size());
  double error = 0, norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace sluice::test

#endif  // SLUICE_TESTS_QUANT_DECODER_RUN_DECODER_H_
