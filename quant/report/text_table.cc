#include "quant/report/text_table.h"

#include <algorithm>
#include <cassert>

#include "quant/report/printable.h"

namespace sluice {

void TextTable::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::Text() const {
  std::vector<size_t> widths;
  widths.reserve(columns_.size());
  for (const TextColumn& column : columns_) widths.push_back(DisplayWidth(column.heading));
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], DisplayWidth(row[c]));
  }
  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string padding(widths[c] - DisplayWidth(cell), ' ');
      line += columns_[c].align == Align::kRight ? "  " + padding + cell : "  " + cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_line([&](size_t c) -> const std::string& { return columns_[c].heading; });
  for (const auto& row : rows_) {
    add_line([&](size_t c) -> const std::string& { return row[c]; });
  }
  return text;
}

}  // namespace sluice
