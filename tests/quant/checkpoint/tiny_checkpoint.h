// Checkpoints of a few numbers, each of which says where it belongs.
#ifndef SLUICE_TESTS_QUANT_CHECKPOINT_TINY_CHECKPOINT_H_
#define SLUICE_TESTS_QUANT_CHECKPOINT_TINY_CHECKPOINT_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <format>
#include <string>
#include <string_view>
#include <vector>

#include "quant/checkpoint/checkpoint.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

namespace sluice::test {

inline constexpr size_t kTinyModel = 4;  // d_model
inline constexpr size_t kTinyFf = 6;     // d_ff

// Output `row`, input `col` of a matrix; its bias has column 99.
inline float TinyValue(size_t layer, Matrix m, size_t row, size_t col) {
  return static_cast<float>(100'000 * (layer + 1) + 10'000 * (static_cast<size_t>(m) + 1) +
                            100 * row + col);
}

inline size_t TinyRows(Matrix m) { return m == Matrix::kDown ? kTinyModel : kTinyFf; }
inline size_t TinyCols(Matrix m) { return m == Matrix::kDown ? kTinyFf : kTinyModel; }

// [out, in].
inline std::vector<float> TinyMatrix(size_t layer, Matrix m) {
  std::vector<float> values;
  for (size_t r = 0; r < TinyRows(m); ++r) {
    for (size_t c = 0; c < TinyCols(m); ++c) values.push_back(TinyValue(layer, m, r, c));
  }
  return values;
}

// [in, out].
inline std::vector<float> TinyTransposed(size_t layer, Matrix m) {
  std::vector<float> values;
  for (size_t c = 0; c < TinyCols(m); ++c) {
    for (size_t r = 0; r < TinyRows(m); ++r) values.push_back(TinyValue(layer, m, r, c));
  }
  return values;
}

inline std::vector<float> TinyBias(size_t layer, Matrix m) {
  std::vector<float> values(TinyRows(m));
  for (size_t r = 0; r < values.size(); ++r) values[r] = TinyValue(layer, m, r, 99);
  return values;
}

// Adds `base`.weight, and `base`.bias, to a file of either kind.
template <class Writer>
void AddTiny(Writer& file, const std::string& base, size_t layer, Matrix m, bool bias = false) {
  file.F32(base + ".weight", {TinyRows(m), TinyCols(m)}, TinyMatrix(layer, m));
  if (bias) file.F32(base + ".bias", {TinyRows(m)}, TinyBias(layer, m));
}

// `start` + layer + "." + the names of gate, up, down; two layers.
template <class Writer>
void AddTinyLayers(Writer& file, std::string_view start, const PerMatrix<std::string>& names,
                   bool biases = false) {
  for (size_t layer = 0; layer < 2; ++layer) {
    for (const Matrix m : kMatrices) {
      if (names[m].empty()) continue;
      AddTiny(file, std::format("{}{}.{}", start, layer, names[m]), layer, m, biases);
    }
  }
}

inline const PerMatrix<std::string> kTinyProjections = {
    {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}};

// A Llama of two layers.
inline SafetensorsBytes TinyLlama() {
  SafetensorsBytes file;
  AddTinyLayers(file, "model.layers.", kTinyProjections);
  return file;
}
inline constexpr std::string_view kTinyLlamaConfig =
    R"({"model_type":"llama","hidden_act":"silu","hidden_size":4,"intermediate_size":6,
        "num_hidden_layers":2})";

// A folder with model.safetensors and config.json.
inline void WriteTiny(const TempDir& dir, const SafetensorsBytes& file, std::string_view config) {
  WriteBytes(dir.File("model.safetensors"), file.Build());
  WriteBytes(dir.File("config.json"), config);
}

// Every matrix of `layer` as TinyValue says, through the named API call.
inline void ExpectTinyLayer(const Checkpoint& checkpoint, size_t layer, bool gated, bool biases) {
  const Expected<FfnWeights> weights = checkpoint.Load(layer);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ(weights->layer, layer);
  EXPECT_EQ(weights->gated, gated);
  for (const Matrix m : kMatrices) {
    SCOPED_TRACE(std::format("layer {} {}", layer, Name(m)));
    const LinearWeights& linear = weights->matrices[m];
    if (m == Matrix::kGate && !gated) {
      EXPECT_TRUE(linear.weights.empty());
      continue;
    }
    EXPECT_EQ(linear.rows, TinyRows(m));
    EXPECT_EQ(linear.cols, TinyCols(m));
    EXPECT_EQ(linear.weights, TinyMatrix(layer, m));
    EXPECT_EQ(linear.bias, biases ? TinyBias(layer, m) : std::vector<float>());
  }
}

// The error of opening what must be refused; one line.
inline std::string OpenError(const std::string& path,
                             const std::optional<std::string>& config = {}) {
  const Expected<Checkpoint> checkpoint = Checkpoint::Open(path, config);
  if (checkpoint) {
    ADD_FAILURE() << path << " was accepted";
    return "";
  }
  EXPECT_EQ(checkpoint.error().message.find('\n'), std::string::npos) << checkpoint.error().message;
  return checkpoint.error().message;
}

}  // namespace sluice::test

#endif  // SLUICE_TESTS_QUANT_CHECKPOINT_TINY_CHECKPOINT_H_
