// Tables for a terminal.
#ifndef SLUICE_QUANT_REPORT_TEXT_TABLE_H_
#define SLUICE_QUANT_REPORT_TEXT_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace sluice {

enum class Align { kLeft, kRight };

struct TextColumn {
  std::string heading;
  Align align = Align::kRight;
};

// Columns as wide as their widest cell, two spaces apart, under headings.
class TextTable {
 public:
  explicit TextTable(std::vector<TextColumn> columns) : columns_(std::move(columns)) {}

  // One cell for each column.
  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // Every line is indented by two spaces and ends in '\n'. No trailing spaces.
  std::string Text() const;

 private:
  std::vector<TextColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace sluice

#endif  // SLUICE_QUANT_REPORT_TEXT_TABLE_H_
