#include "bench/sluice_library.h"

#include <algorithm>
#include <map>
#include <utility>

#include "src/backends/backend.h"
#include "src/base/fp_environment.h"
#include "src/base/status.h"

namespace sluice::bench {
namespace {

// Does what Ffn::Forward does, but all copies share their scratch memory, as the layers of a model
// would: a Workspace belongs to one Ffn, and hundreds of them would be cold like the weights.
class SluiceBlocks : public Blocks {
 public:
  static Expected<std::unique_ptr<Blocks>> Create(const Request& request,
                                                  std::string_view backend_name) {
    auto blocks = std::make_unique<SluiceBlocks>();
    SLUICE_ASSIGN(const Backend* const backend, FindBackend(backend_name));
    // XNNPACK keeps copies of its own, made from any one.
    const bool repacks = backend_name == "xnnpack";
    SLUICE_ASSIGN(blocks->ring_,
                  PackedRing::Create(*request.block, repacks ? 1 : request.copies, request.pages));
    size_t scratch = 0;
    for (const size_t threads : request.threads) {
      SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(threads));
      Team& team = blocks->teams_.try_emplace(threads, std::move(pool)).first->second;
      const RunnerOptions options = {request.target, threads == 1 ? nullptr : &team.pool};
      for (size_t i = 0; i < request.copies; ++i) {
        const BlockView& view = blocks->ring_.views()[repacks ? 0 : i];
        SLUICE_ASSIGN(auto runner, backend->create(view, options));
        team.runners.push_back(std::move(runner));
      }
      const BlockRunner& first = *team.runners.front();
      scratch = std::max(scratch,
                         first.ScratchBytes(std::min(request.max_tokens, first.MaxPassTokens())));
    }
    SLUICE_ASSIGN(blocks->scratch_, AlignedBuffer::Create(scratch));
    return blocks;
  }

  Status Run(size_t copy, size_t threads, MatrixView<const float> x, MatrixView<float> y) override {
    const FpEnvironment environment;
    const BlockRunner& runner = *teams_.at(threads).runners[copy];
    const size_t pass_tokens = runner.MaxPassTokens();
    for (size_t first = 0; first < x.rows; first += pass_tokens) {
      const size_t count = std::min(pass_tokens, x.rows - first);
      const Pass pass = {x.Rows(first, count), y.Rows(first, count), false, scratch_.span()};
      runner.GateUp(pass);
      runner.Down(pass);
    }
    return {};
  }

  uint64_t weight_bytes() const override { return ring_.bytes_each(); }
  std::string Describe() const override {
    return teams_.begin()->second.runners.front()->Describe();
  }

 private:
  struct Team {
    explicit Team(ThreadPool p) : pool(std::move(p)) {}
    ThreadPool pool;
    std::vector<std::unique_ptr<BlockRunner>> runners;
  };
  PackedRing ring_;
  std::map<size_t, Team> teams_;  // by the number of threads
  AlignedBuffer scratch_;
};

}  // namespace

Expected<std::unique_ptr<Blocks>> CreateSluice(const Request& request, std::string_view backend) {
  return SluiceBlocks::Create(request, backend);
}

const Library& Sluice() {
  static const Library library = {
      "sluice", [](const BlockFormat&) { return true; },
      /*excused_errors=*/1.5, /*ring_per_threads=*/false,
      [](const Request& request) { return CreateSluice(request, "highway"); }};
  return library;
}

}  // namespace sluice::bench
