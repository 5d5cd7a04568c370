#include "quant/cli/partial.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <format>
#include <map>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/file/safetensors.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

using Metadata = std::map<std::string, std::string>;

// Tensors and their bytes, as WriteSafetensors takes them.
class TensorList {
 public:
  template <class T>
  void Add(std::string name, const std::string& dtype, const std::vector<T>& values) {
    if (values.empty()) return;
    tensors_.push_back({std::move(name), dtype, {values.size()}});
    bytes_.push_back(std::as_bytes(std::span(values)));
  }
  Status Write(const std::string& path, const Metadata& metadata) const {
    return WriteSafetensors(path, tensors_, bytes_, metadata);
  }

 private:
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::span<const std::byte>> bytes_;
};

template <class T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* entry = file.Find(name);
  if (entry == nullptr) return {};
  std::vector<T> values(entry->bytes.size() / sizeof(T));
  std::memcpy(values.data(), entry->bytes.data(), values.size() * sizeof(T));
  return values;
}

Expected<std::string> Text(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found != file.metadata().end()) return found->second;
  return Fail(ErrorCode::kCorrupt, "{}: metadata \"{}\" is missing", file.path(), key);
}

template <class T>
Expected<T> Number(const SafetensorsFile& file, const std::string& key) {
  SLUICE_ASSIGN(const std::string text, Text(file, key));
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end) return number;
  return Fail(ErrorCode::kCorrupt, "{}: metadata \"{}\" is {}, no number", file.path(), key, text);
}

std::string LayerPath(const std::string& folder, size_t layer) {
  return std::format("{}/layer-{}.safetensors", folder, layer);
}

std::string StreamsPath(const std::string& folder) { return folder + "/streams.safetensors"; }

void Describe(const std::string& m, const MatrixFit& fit, Metadata& metadata) {
  metadata[m + ".format"] = Name(fit.matrix.format);
  metadata[m + ".rows"] = std::to_string(fit.matrix.rows);
  metadata[m + ".cols"] = std::to_string(fit.matrix.cols);
  metadata[m + ".method"] = Name(fit.method);
  metadata[m + ".note"] = fit.note;
  metadata[m + ".damping_step"] = std::format("{}", fit.damping_step);
  metadata[m + ".loss"] = std::format("{}", fit.loss);
  metadata[m + ".loss_rtn"] = std::format("{}", fit.loss_rtn);
}

Expected<MatrixFit> ReadFit(const SafetensorsFile& file, const std::string& m) {
  MatrixFit fit;
  SLUICE_ASSIGN(const std::string format, Text(file, m + ".format"));
  SLUICE_ASSIGN(fit.matrix.format, ParseWeightFormat(format));
  SLUICE_ASSIGN(fit.matrix.rows, Number<size_t>(file, m + ".rows"));
  SLUICE_ASSIGN(fit.matrix.cols, Number<size_t>(file, m + ".cols"));
  SLUICE_ASSIGN(const std::string method, Text(file, m + ".method"));
  SLUICE_ASSIGN(fit.method, ParseMethod(method));
  SLUICE_ASSIGN(fit.note, Text(file, m + ".note"));
  SLUICE_ASSIGN(fit.damping_step, Number<double>(file, m + ".damping_step"));
  SLUICE_ASSIGN(fit.loss, Number<double>(file, m + ".loss"));
  SLUICE_ASSIGN(fit.loss_rtn, Number<double>(file, m + ".loss_rtn"));
  QuantizedMatrix& matrix = fit.matrix;
  matrix.integers = Values<int8_t>(file, m + ".integers");
  matrix.scales = Values<float>(file, m + ".scales");
  matrix.values = Values<float>(file, m + ".values");
  const size_t size = matrix.rows * matrix.cols;
  const bool sound = matrix.format.quantized()
                         ? matrix.integers.size() == size && matrix.cols != 0 &&
                               matrix.scales.size() == matrix.rows * matrix.blocks()
                         : matrix.values.size() == size;
  if (sound) return fit;
  return Fail(ErrorCode::kCorrupt, "{}: {} is not [{}, {}]", file.path(), m, matrix.rows,
              matrix.cols);
}

}  // namespace

PartialResult::PartialResult(std::string path, std::string job)
    : path_(std::move(path)), job_(std::move(job)) {}

PartialResult::PartialResult(PartialResult&& o) noexcept
    : path_(std::exchange(o.path_, {})), job_(std::move(o.job_)), done_(o.done_) {}

PartialResult::~PartialResult() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Expected<PartialResult> PartialResult::Open(const std::string& path, const std::string& job,
                                            bool resume) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    fs::create_directory(path, error);
    if (error) return Fail(ErrorCode::kIo, "{}: cannot make it: {}", path, error.message());
    PartialResult partial(path, job);
    SLUICE_TRY(partial.WriteStreams({}));
    return partial;
  }
  if (!resume) {
    return Fail(ErrorCode::kInvalidArgument,
                "{}: exists already: another run writes it, or one was killed; --resume goes on "
                "from there, and without the folder everything starts anew",
                path);
  }
  // Nothing of a folder that is refused may be lost, so the object is made last.
  SLUICE_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(StreamsPath(path)));
  SLUICE_ASSIGN(const std::string theirs, Text(file, "job"));
  if (theirs != job) {
    return Fail(ErrorCode::kInvalidArgument,
                "{}: is of another job: there {}; here {}. Without the folder everything starts "
                "anew",
                path, theirs, job);
  }
  SLUICE_ASSIGN(const size_t done, Number<size_t>(file, "done"));
  PartialResult partial(path, job);
  partial.done_ = done;
  return partial;
}

Expected<BlockFit> PartialResult::Load(size_t layer) const {
  SLUICE_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(LayerPath(path_, layer)));
  BlockFit fit;
  fit.rescale = Values<float>(file, "rescale");
  for (const Matrix m : kMatrices) {
    const std::string name(Name(m));
    if (!file.metadata().contains(name + ".format")) continue;
    SLUICE_ASSIGN(fit.matrices[m], ReadFit(file, name));
  }
  return fit;
}

Expected<Streams> PartialResult::LoadStreams() const {
  SLUICE_ASSIGN(const SafetensorsFile file, SafetensorsFile::Open(StreamsPath(path_)));
  return Streams{Values<float>(file, "exact"), Values<float>(file, "rounded")};
}

Status PartialResult::Save(size_t layer, const BlockFit& fit, const Streams& streams) {
  TensorList matrices;
  Metadata metadata;
  for (const Matrix m : kMatrices) {
    if (!fit.matrices[m]) continue;
    const std::string name(Name(m));
    const QuantizedMatrix& matrix = fit.matrices[m]->matrix;
    Describe(name, *fit.matrices[m], metadata);
    matrices.Add(name + ".integers", "I8", matrix.integers);
    matrices.Add(name + ".scales", "F32", matrix.scales);
    matrices.Add(name + ".values", "F32", matrix.values);
  }
  matrices.Add("rescale", "F32", fit.rescale);
  if (!metadata.empty()) SLUICE_TRY(matrices.Write(LayerPath(path_, layer), metadata));
  done_ = layer + 1;
  return WriteStreams(streams);
}

Status PartialResult::WriteStreams(const Streams& streams) const {
  TensorList both;
  both.Add("exact", "F32", streams.exact);
  both.Add("rounded", "F32", streams.rounded);
  // A safetensors file has at least one tensor.
  const std::vector<int8_t> mark = {0};
  if (streams.exact.empty()) both.Add("none", "I8", mark);
  return both.Write(StreamsPath(path_), {{"job", job_}, {"done", std::to_string(done_)}});
}

}  // namespace sluice
