#include "cli/table.h"

#include <algorithm>
#include <ostream>

namespace kaon {

namespace {

/// Characters, not bytes, of UTF-8.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void Table::print(std::ostream& out) const {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  for (const Column& column : columns_) titles.push_back(column.title);
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths.push_back(width(titles[i]));
    for (const auto& row : rows_) widths[i] = std::max(widths[i], width(row.at(i)));
  }
  const auto print_row = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string padding(widths[i] - width(cells[i]), ' ');
      line += columns_[i].align == Align::Right ? padding + cells[i] : cells[i] + padding;
      if (i + 1 < cells.size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  };
  print_row(titles);
  std::vector<std::string> rules;
  for (const size_t length : widths) rules.emplace_back(length, '-');
  print_row(rules);
  for (const auto& row : rows_) print_row(row);
}

}  // namespace kaon
