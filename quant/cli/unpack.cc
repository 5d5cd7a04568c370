// sluice unpack: a packed file's matrices as plain tensors.
#include <cstddef>
#include <cstdint>
#include <format>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/cli/command.h"
#include "quant/cli/console.h"
#include "quant/cli/files.h"
#include "quant/cli/options.h"
#include "quant/quantizer/rescale.h"
#include "quant/report/numbers.h"
#include "quant/report/printable.h"
#include "sluice/model.h"
#include "src/base/atomic_file.h"
#include "src/base/status.h"
#include "src/file/model_impl.h"
#include "src/file/safetensors.h"
#include "src/format/pack.h"

namespace sluice {
namespace {

struct Options {
  std::string file;
  std::string output;
  bool integers = false;
  bool quiet = false;
};

// What is written of one stored matrix, and where its tensors lie in the output.
struct Part {
  size_t layer = 0;
  Matrix matrix = Matrix::kGate;
  const MatrixInfo* info = nullptr;
  size_t weights = 0;                  // index of the tensor
  size_t scales = 0;                   // with --integers, of quantized matrices
  size_t bias = 0;                     // if there is one
  std::optional<size_t> rescale = {};  // with --integers, of a rescaled up
};

class Unpacker {
 public:
  explicit Unpacker(const Options& options) : options_(options) {}

  Status Run() {
    SLUICE_TRY(CheckOutputs({options_.output}, {options_.file}));
    SLUICE_ASSIGN(const Model model, OpenPacked(options_.file));
    SLUICE_TRY(model.Verify());  // values of a damaged file would look like any others
    Plan(model);
    const auto header = SafetensorsHeader(tensors_, {});
    if (!header) {
      return Fail(header.error().code, "{}: {}", options_.output, header.error().message);
    }
    SLUICE_TRY(PlaceTensors(header->size()));
    SLUICE_ASSIGN(AtomicFile file, AtomicFile::Create(options_.output));
    SLUICE_TRY(file.Write(*header));
    SLUICE_TRY(WriteParts(model, file));
    SLUICE_TRY(file.Commit());
    if (!options_.quiet) {
      Print(std::format("{}: {} unpacked, {}\n", Printable(options_.output),
                        Plural(tensors_.size(), "tensor"), Size(static_cast<double>(end_))));
    }
    return {};
  }

 private:
  bool AsIntegers(const MatrixInfo& info) const {
    return options_.integers && info.format.quantized();
  }

  size_t AddTensor(const std::string& name, const char* dtype, std::vector<uint64_t> shape) {
    tensors_.push_back({name, dtype, std::move(shape)});
    return tensors_.size() - 1;
  }

  // F32 first, I8 after them, so that every value is aligned whatever the shapes.
  void Plan(const Model& model) {
    for (const LayerInfo& layer : model.layers()) {
      for (const Matrix m : kMatrices) {
        if (!layer.matrices[m]) continue;
        const MatrixInfo& info = *layer.matrices[m];
        Part part = {.layer = layer.layer, .matrix = m, .info = &info};
        if (AsIntegers(info)) {
          const size_t block = info.format.blocked() ? info.format.block : info.cols;
          part.scales =
              AddTensor(info.name + ".scale", "F32", {info.rows, DivCeil(info.cols, block)});
        } else {
          part.weights = AddTensor(info.name, "F32", {info.rows, info.cols});
        }
        if (options_.integers && layer.rescaled && m == Matrix::kUp) {
          part.rescale = AddTensor(info.name + ".rescale", "F32", {layer.d_ff});
        }
        if (!info.bias_name.empty()) part.bias = AddTensor(info.bias_name, "F32", {info.rows});
        parts_.push_back(part);
      }
    }
    for (Part& part : parts_) {
      if (!AsIntegers(*part.info)) continue;
      part.weights = AddTensor(part.info->name, "I8", {part.info->rows, part.info->cols});
    }
  }

  Status PlaceTensors(uint64_t header_bytes) {
    end_ = header_bytes;
    for (const SafetensorsTensor& tensor : tensors_) {
      offsets_.push_back(end_);
      SLUICE_ASSIGN(const uint64_t bytes, TensorBytes(tensor.dtype, tensor.shape));
      end_ += bytes;
    }
    return {};
  }

  // Stored with --integers, else the model's.
  std::vector<float> Bias(const PackedMatrixView& packed, Matrix m,
                          std::span<const float> factors) const {
    std::vector<float> bias(packed.bias, packed.bias + packed.layout.rows);
    if (options_.integers || m != Matrix::kUp) return bias;
    for (size_t r = 0; r < bias.size(); ++r) bias[r] /= RescaleAt(m, factors, r, 0);
    return bias;
  }

  template <class T>
  Status WriteTensor(AtomicFile& file, size_t tensor, std::span<const T> values) const {
    return file.WriteAt(offsets_[tensor], std::as_bytes(values));
  }

  // One matrix is in memory at a time.
  Status WriteParts(const Model& model, AtomicFile& file) const {
    Progress progress("unpacking", options_.quiet);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      SLUICE_ASSIGN(const BlockView block, model.impl().Block(part.layer));
      const PackedMatrixView& packed = block.matrices[part.matrix];
      const QuantizedMatrix matrix = Unpack(packed);
      SLUICE_ASSIGN(const std::vector<float> factors, model.impl().Rescale(part.layer));
      if (AsIntegers(*part.info)) {
        SLUICE_TRY(WriteTensor(file, part.weights, std::span<const int8_t>(matrix.integers)));
        SLUICE_TRY(WriteTensor(file, part.scales, std::span<const float>(matrix.scales)));
      } else {
        SLUICE_TRY(WriteTensor(file, part.weights,
                               std::span<const float>(Restore(part.matrix, factors, matrix))));
      }
      if (part.rescale) {
        SLUICE_TRY(WriteTensor(file, *part.rescale, std::span<const float>(factors)));
      }
      if (packed.bias != nullptr) {
        SLUICE_TRY(WriteTensor(file, part.bias,
                               std::span<const float>(Bias(packed, part.matrix, factors))));
      }
      model.impl().Release(packed);
      progress.Show(i + 1, parts_.size(),
                    std::format("layer {}, {}", part.layer, Name(part.matrix)));
    }
    return {};
  }

  const Options& options_;
  std::vector<Part> parts_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<uint64_t> offsets_;  // in the output, of tensors_
  uint64_t end_ = 0;
};

}  // namespace

void AddUnpack(CLI::App& app, Invocation& invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "unpack",
      "Write a packed file's matrices as plain tensors.\n"
      "Each matrix becomes F32 [out, in] without padding, under the name it has in the model; "
      "biases "
      "become F32 [out] under theirs. The values are those that the kernels compute with; where "
      "quantize rescaled up against down, that is undone, so that each compares with the model's.");
  sub->add_option("FILE", options->file, "The packed file, written by `sluice quantize`.")
      ->required();
  sub->add_option("-o,--output", options->output,
                  "The safetensors file to write. It is replaced if it exists.")
      ->type_name("OUT.safetensors")
      ->required();
  sub->add_flag(
      "--integers", options->integers,
      "Write quantized matrices as they are stored: NAME as I8 [out, in], int4 as -8 to 7, and "
      "NAME.scale as F32 [out, blocks], blocks being 1 where a row has one scale. f32 and "
      "bf16 matrices stay F32. Rescaling is not undone: NAME.rescale of up, F32 [d_ff], is what "
      "its rows were multiplied by and down's columns divided by.");
  AddQuiet(*sub, options->quiet, "Print nothing but warnings and errors.");
  sub->footer(
      "Examples:\n"
      "  sluice unpack smol.safetensors -o plain.safetensors\n"
      "  sluice unpack smol.safetensors -o integers.safetensors --integers");
  sub->callback(
      [options, &invocation] { invocation.run = [options] { return Unpacker(*options).Run(); }; });
}

}  // namespace sluice
