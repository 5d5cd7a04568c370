// ONNX Runtime: MatMulNBits, int4 in blocks of 32 with f32 scales, accuracy_level 4 (activations
// int8 in blocks). One session for each copy and number of threads: the number is a session's
// property. Two or more threads are those of the process, shared by all sessions; otherwise every
// one of hundreds of sessions would have its own.
#include <fcntl.h>
#include <onnxruntime_cxx_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <format>
#include <map>

#include "bench/rivals/onnx_model.h"
#include "bench/rivals/rivals.h"
#include "src/base/status.h"

namespace sluice::bench {
namespace {

// Debian's package registers every operator of ONNX twice and says so on stderr, a thousand lines;
// this keeps them away. Errors come as exceptions.
class Silence {
 public:
  Silence() : kept_(dup(STDERR_FILENO)) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null, STDERR_FILENO);
    close(null);
  }
  ~Silence() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  int kept_;
};

// The process has one environment, and that has one pool.
Ort::Env& Environment(size_t threads) {
  static Ort::Env environment = [&] {
    Ort::ThreadingOptions options;
    options.SetGlobalIntraOpNumThreads(static_cast<int>(threads));
    options.SetGlobalInterOpNumThreads(1);
    return Ort::Env(options, ORT_LOGGING_LEVEL_ERROR, "sluice");
  }();
  return environment;
}

class OnnxBlocks : public Blocks {
 public:
  static Expected<std::unique_ptr<Blocks>> Create(const Request& request) {
    std::vector<size_t> shared = request.threads;
    std::erase(shared, size_t{1});
    if (shared.size() > 1) {
      return Fail(ErrorCode::kUnsupported,
                  "ONNX Runtime has one pool in a process: measure at most one number of threads "
                  "beside 1");
    }
    auto blocks = std::make_unique<OnnxBlocks>();
    for (const QuantizedMatrix& matrix : request.block->matrices.items) {
      blocks->bytes_ += matrix.rows * matrix.blocks() * 16 + matrix.scales.size() * sizeof(float);
    }
    const Silence silence;
    const std::string model = OnnxModel(*request.block);
    Ort::Env& environment = Environment(shared.empty() ? 1 : shared.front());
    for (const size_t threads : request.threads) {
      Ort::SessionOptions options;
      options.SetGraphOptimizationLevel(ORT_ENABLE_ALL);
      if (threads == 1) {
        options.SetIntraOpNumThreads(1);
      } else {
        options.DisablePerSessionThreads();
      }
      for (size_t i = 0; i < request.copies; ++i) {
        blocks->sessions_[threads].emplace_back(environment, model.data(), model.size(), options);
      }
    }
    return blocks;
  }

  Status Run(size_t copy, size_t threads, MatrixView<const float> x, MatrixView<float> y) override {
    try {
      const std::array<int64_t, 2> shape = {static_cast<int64_t>(x.rows),
                                            static_cast<int64_t>(x.cols)};
      const size_t size = x.rows * x.cols;
      const Ort::Value in = Ort::Value::CreateTensor<float>(memory_, const_cast<float*>(x.data),
                                                            size, shape.data(), shape.size());
      Ort::Value out =
          Ort::Value::CreateTensor<float>(memory_, y.data, size, shape.data(), shape.size());
      const char* const x_name = "x";
      const char* const y_name = "y";
      sessions_.at(threads)[copy].Run(Ort::RunOptions(nullptr), &x_name, &in, 1, &y_name, &out, 1);
      return {};
    } catch (const Ort::Exception& error) {
      return Fail(ErrorCode::kUnsupported, "ONNX Runtime: {}", error.what());
    }
  }

  uint64_t weight_bytes() const override { return bytes_; }
  std::string Describe() const override {
    return std::format("onnxruntime {}, MatMulNBits block 32 accuracy_level 4",
                       Ort::GetVersionString());
  }

 private:
  std::map<size_t, std::vector<Ort::Session>> sessions_;  // by the number of threads
  Ort::MemoryInfo memory_ = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  uint64_t bytes_ = 0;
};

bool Takes(const BlockFormat& format) { return format == BlockFormat{{WeightType::kInt4, 32}, {}}; }

}  // namespace

Library OnnxRuntime() {
  return {"onnxruntime", Takes, /*excused_errors=*/1.5, /*ring_per_threads=*/true,
          [](const Request& request) -> Expected<std::unique_ptr<Blocks>> {
            try {
              return OnnxBlocks::Create(request);
            } catch (const Ort::Exception& error) {
              return Fail(ErrorCode::kUnsupported, "ONNX Runtime: {}", error.what());
            }
          }};
}

}  // namespace sluice::bench
