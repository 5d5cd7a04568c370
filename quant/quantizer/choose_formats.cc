#include "quant/quantizer/choose_formats.h"

#include <algorithm>
#include <numeric>

#include "src/base/status.h"

namespace sluice {
namespace {

// From one option of a matrix to the next better one on its lower convex hull.
struct Step {
  size_t matrix = 0;
  size_t option = 0;
  uint64_t bytes = 0;  // more
  double gain = 0;     // less loss
  double rate() const { return gain / static_cast<double>(bytes); }
};

// Options by size that are worth having: loss falls, and ever more slowly for the bytes.
std::vector<size_t> Hull(const std::vector<FormatOption>& options) {
  std::vector<size_t> order(options.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    if (options[a].bytes != options[b].bytes) return options[a].bytes < options[b].bytes;
    return options[a].loss < options[b].loss;
  });
  const auto rate = [&](size_t a, size_t b) {
    return (options[a].loss - options[b].loss) /
           static_cast<double>(options[b].bytes - options[a].bytes);
  };
  std::vector<size_t> hull;
  for (const size_t i : order) {
    if (!hull.empty() && options[i].loss >= options[hull.back()].loss) continue;
    while (hull.size() >= 2 && rate(hull[hull.size() - 2], hull.back()) <= rate(hull.back(), i)) {
      hull.pop_back();
    }
    hull.push_back(i);
  }
  return hull;
}

class Chooser {
 public:
  Chooser(std::span<const MatrixOptions> matrices, const FormatBudget& budget)
      : matrices_(matrices), budget_(budget) {
    for (size_t m = 0; m < matrices.size(); ++m) {
      const auto& options = matrices[m].options;
      const std::vector<size_t> hull = Hull(options);
      choice_.picked.push_back(hull.front());
      choice_.bytes += options[hull.front()].bytes;
      choice_.loss += options[hull.front()].loss;
      weights_ += matrices[m].weights;
      for (size_t i = 1; i < hull.size(); ++i) {
        const FormatOption& from = options[hull[i - 1]];
        const FormatOption& to = options[hull[i]];
        steps_.push_back({m, hull[i], to.bytes - from.bytes, from.loss - to.loss});
      }
    }
    // A matrix's own steps have falling rates, so they stay in their order.
    std::ranges::stable_sort(steps_,
                             [](const Step& a, const Step& b) { return a.rate() > b.rate(); });
  }

  Expected<FormatChoice> Run() {
    if (budget_.loss) {
      SLUICE_TRY(UntilGoodEnough(*budget_.loss));
    } else {
      SLUICE_TRY(WhileItFits());
    }
    choice_.bits = Bits(choice_.bytes);
    return choice_;
  }

 private:
  double Bits(uint64_t bytes) const {
    return 8 * static_cast<double>(bytes) / static_cast<double>(weights_);
  }

  void Take(const Step& step) {
    choice_.picked[step.matrix] = step.option;
    choice_.bytes += step.bytes;
    choice_.loss -= step.gain;
  }

  Status UntilGoodEnough(double limit) {
    for (const Step& step : steps_) {
      if (choice_.loss <= limit) return {};
      Take(step);
    }
    if (choice_.loss <= limit) return {};
    return Fail(ErrorCode::kInvalidArgument,
                "a loss of {:.3g} is not reached: the best formats, {:.4g} bits per weight, are "
                "predicted to give {:.3g}",
                limit, Bits(choice_.bytes), choice_.loss);
  }

  Status WhileItFits() {
    const auto fits = [&](uint64_t bytes) {
      return budget_.bytes ? bytes <= *budget_.bytes : Bits(bytes) <= *budget_.bits;
    };
    if (!fits(choice_.bytes)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "the smallest formats take {} bytes, {:.4g} bits per weight; the budget is less",
                  choice_.bytes, Bits(choice_.bytes));
    }
    // After a step that does not fit, those of other matrices still may, but not this one's next.
    std::vector<bool> closed(matrices_.size());
    for (const Step& step : steps_) {
      if (closed[step.matrix]) continue;
      if (fits(choice_.bytes + step.bytes)) {
        Take(step);
      } else {
        closed[step.matrix] = true;
      }
    }
    return {};
  }

  std::span<const MatrixOptions> matrices_;
  const FormatBudget& budget_;
  std::vector<Step> steps_;
  uint64_t weights_ = 0;
  FormatChoice choice_;
};

}  // namespace

Expected<FormatChoice> ChooseFormats(std::span<const MatrixOptions> matrices,
                                     const FormatBudget& budget) {
  return Chooser(matrices, budget).Run();
}

}  // namespace sluice
