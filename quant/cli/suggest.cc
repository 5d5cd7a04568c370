#include "quant/cli/suggest.h"

#include <algorithm>
#include <numeric>

namespace sluice {

size_t EditDistance(std::string_view a, std::string_view b) {
  // row[j]: from what was seen of a to the first j characters of b.
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

std::string Nearest(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kMost = 2;
  std::string nearest;
  size_t least = kMost + 1;
  for (const std::string& candidate : known) {
    // A long name is not compared at all: it may be as long as a command line.
    if (std::max(name.size(), candidate.size()) > std::min(name.size(), candidate.size()) + kMost) {
      continue;
    }
    const size_t distance = EditDistance(name, candidate);
    if (distance >= least) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace sluice
