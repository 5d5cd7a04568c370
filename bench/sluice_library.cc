#include "bench/sluice_library.h"

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/ffn/ffn_impl.h"

namespace sluice::bench {
namespace {

// All copies share a workspace, as the layers of a model do.
class SluiceBlocks : public Blocks {
 public:
  static Expected<std::unique_ptr<Blocks>> Create(const Request& request,
                                                  std::string_view backend) {
    auto blocks = std::make_unique<SluiceBlocks>();
    // XNNPACK keeps copies of its own, made from any one.
    const bool repacks = backend == "xnnpack";
    SLUICE_ASSIGN(blocks->ring_,
                  PackedRing::Create(*request.block, repacks ? 1 : request.copies, request.pages));
    for (const size_t threads : request.threads) {
      SLUICE_ASSIGN(ThreadPool pool, ThreadPool::Create(threads));
      Team& team = blocks->teams_.try_emplace(threads, std::move(pool)).first->second;
      const FfnOptions options = {.backend = backend,
                                  .target = request.target,
                                  .pool = threads == 1 ? nullptr : &team.pool};
      for (size_t i = 0; i < request.copies; ++i) {
        SLUICE_ASSIGN(Ffn ffn, CreateFfn(blocks->ring_.views()[repacks ? 0 : i], options));
        team.blocks.push_back(std::move(ffn));
      }
    }
    const Ffn& any = blocks->teams_.begin()->second.blocks.front();
    SLUICE_ASSIGN(Workspace workspace, any.Plan(request.max_tokens));
    blocks->workspace_ = std::move(workspace);
    return blocks;
  }

  Status Run(size_t copy, size_t threads, MatrixView<const float> x, MatrixView<float> y) override {
    return teams_.at(threads).blocks[copy].Forward(x, y, *workspace_);
  }

  uint64_t weight_bytes() const override { return ring_.bytes_each(); }
  std::string Describe() const override { return teams_.begin()->second.blocks.front().Describe(); }

 private:
  struct Team {
    explicit Team(ThreadPool p) : pool(std::move(p)) {}
    ThreadPool pool;
    std::vector<Ffn> blocks;
  };
  PackedRing ring_;
  std::map<size_t, Team> teams_;  // by the number of threads
  std::optional<Workspace> workspace_;
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
