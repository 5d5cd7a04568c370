// write_samples FOLDER: packed models in every format, each beside the plain matrices it was packed
// from, for readers in other languages.
//
//   NAME.packed.safetensors   what src/file writes
//   NAME.plain.safetensors    layers.N.M.integers and .scales, or .values; .bias; layers.N.rescale
#include <cstdio>
#include <format>
#include <span>
#include <string>
#include <vector>

#include "src/file/safetensors.h"
#include "tests/file/sample_model.h"
#include "tests/support/random_block.h"
#include "tests/support/seed.h"

namespace sluice::test {
namespace {

// Collects tensors whose memory the caller keeps.
struct Plain {
  std::vector<SafetensorsTensor> tensors;
  std::vector<std::span<const std::byte>> data;

  template <class T>
  void Add(std::string name, const char* dtype, std::vector<uint64_t> shape,
           const std::vector<T>& values) {
    if (values.empty()) return;
    tensors.push_back({std::move(name), dtype, std::move(shape)});
    data.push_back(std::as_bytes(std::span(values)));
  }
};

Status WritePlain(const std::string& path, const SampleModel& model) {
  Plain plain;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    for (const Matrix m : kMatrices) {
      if (!model.layers[i].matrices[m]) continue;
      const std::string prefix = std::format("layers.{}.{}.", model.layers[i].layer, Name(m));
      const QuantizedMatrix& matrix = model.blocks[i].plain[m];
      plain.Add(prefix + "integers", "I8", {matrix.rows, matrix.cols}, matrix.integers);
      plain.Add(prefix + "scales", "F32", {matrix.rows, matrix.blocks()}, matrix.scales);
      plain.Add(prefix + "values", "F32", {matrix.rows, matrix.cols}, matrix.values);
      plain.Add(prefix + "bias", "F32", {matrix.rows}, model.blocks[i].bias[m]);
    }
    plain.Add(std::format("layers.{}.rescale", model.layers[i].layer), "F32",
              {model.factors[i].size()}, model.factors[i]);
  }
  return WriteSafetensors(path, plain.tensors, plain.data);
}

Status WriteSample(const std::string& folder, const std::string& name, const SampleModel& model) {
  const std::string path = folder + "/" + name;
  if (const Status status = model.Write(path + ".packed.safetensors"); !status) return status;
  return WritePlain(path + ".plain.safetensors", model);
}

Status WriteSamples(const std::string& folder) {
  Random random;
  if (const Status status = WriteSample(folder, "mixed", MixedModel(random)); !status) {
    return status;
  }
  if (const Status status = WriteSample(folder, "rescaled", RescaledModel(random)); !status) {
    return status;
  }
  constexpr size_t kSizes[] = {1, 15, 17, 31, 33, 172, 576};
  for (const WeightFormat format : kWeightFormats) {
    SampleModel model;
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      const BlockOptions options = {
          .formats = AllOf(format), .gated = i % 3 != 0, .biases = i % 2 != 0};
      model.Add(i,
                MakeRandomBlock(random, kSizes[i], kSizes[(i + 4) % std::size(kSizes)], options));
    }
    std::string name = Name(format);
    if (const size_t colon = name.find(':'); colon != name.npos) name[colon] = '-';
    if (const Status status = WriteSample(folder, name, model); !status) return status;
  }
  return {};
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_samples FOLDER\n", stderr);
    return 2;
  }
  if (const sluice::Status status = sluice::test::WriteSamples(argv[1]); !status) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    return 1;
  }
  return 0;
}
