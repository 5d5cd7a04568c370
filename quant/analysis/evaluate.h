// What quantized blocks do to a model's predictions.
#ifndef SLUICE_QUANT_ANALYSIS_EVALUATE_H_
#define SLUICE_QUANT_ANALYSIS_EVALUATE_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "quant/decoder/decoder.h"
#include "quant/decoder/tokens.h"
#include "sluice/cpu.h"
#include "sluice/error.h"
#include "sluice/model.h"

namespace sluice {

// Kullback-Leibler divergence of the quantized model's predictions from the exact one's, in nats:
// statistics over all predictions.
struct DivergenceReport {
  double mean = 0;
  double median = 0;  // the lower one of two
  double p99 = 0;     // the smallest value that at least 99 % do not exceed
  double max = 0;
};

struct FileEvaluation {
  std::string file;
  double bits_per_weight = 0;  // of the blocks in the file
  size_t layers = 0;           // that the file has; the others run in FP32
  double perplexity = 0;       // e^(mean of −ln q(the token that follows))
  DivergenceReport kl;
  double top1_agreement = 0;  // share of the predictions whose likeliest token is the exact model's
  // Mean divergence by the position of the token that predicts, 0 being a window's first; NaN where
  // there is none.
  std::vector<double> per_position;
};

struct Evaluation {
  std::string model;
  std::string source;  // of the tokens
  size_t tokens = 0;
  size_t predictions = 0;
  size_t context = 0;
  double fp32_perplexity = 0;
  std::vector<FileEvaluation> files;
};

struct EvaluateOptions {
  ThreadPool* pool = nullptr;
  // Of steps that take about as long as each other, and what the last one was.
  std::function<void(size_t done, size_t all, const std::string& what)> progress;
  // Memory for the streams; windows go through the model in groups of as many as fit.
  size_t stream_bytes = size_t{256} << 20;
};

// Runs the model in FP32, and once more with the blocks of each of `files`, all side by side, so
// that each layer is read once for every group of windows. Everything but the blocks is FP32 in
// all of them. Errors: no prediction; a file with a layer or a width that the model has not; NaN
// or Inf among the model's weights.
Expected<Evaluation> Evaluate(const Decoder& decoder, std::span<const Model> files,
                              const Tokens& tokens, size_t context, const EvaluateOptions& options);

}  // namespace sluice

#endif  // SLUICE_QUANT_ANALYSIS_EVALUATE_H_
