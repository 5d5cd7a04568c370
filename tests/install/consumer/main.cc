// The smallest program that uses an installed sluice: `consumer FILE` runs one token through the
// first block of a packed file on every backend that takes it, and prints the results' first
// values.
#include <cstdio>
#include <string>
#include <vector>

#include "sluice/sluice.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const sluice::Expected<sluice::Model> model = sluice::Model::Open(argv[1]);
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  const sluice::LayerInfo& layer = model->layers().front();
  std::vector<float> x(layer.d_model), y(layer.d_model);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3.0f;

  for (const sluice::BackendInfo& backend : sluice::Backends()) {
    const sluice::Expected<sluice::Ffn> ffn = model->Layer(layer.layer, {.backend = backend.name});
    if (!ffn) {
      std::fprintf(stderr, "%s\n", ffn.error().message.c_str());
      return 1;
    }
    sluice::Expected<sluice::Workspace> workspace = ffn->Plan(/*max_tokens=*/1);
    if (!workspace) return 1;
    const sluice::Status status =
        ffn->Forward({x.data(), 1, x.size()}, {y.data(), 1, y.size()}, *workspace);
    if (!status) {
      std::fprintf(stderr, "%s\n", status.error().message.c_str());
      return 1;
    }
    std::printf("%s %a %a\n", std::string(backend.name).c_str(), y[0], y[1]);
  }
  return 0;
}
