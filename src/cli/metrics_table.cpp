#include "cli/metrics_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "cli/table.h"

namespace kaon {

void print_outputs(std::ostream& out, const std::vector<OutputMetrics>& outputs) {
  if (outputs.size() < 2) return;
  std::vector<Table::Column> columns{{"output"}};
  const Metrics& all = outputs.front().metrics;  // the first has those of labels, too
  for (const auto& [metric, value] : all) columns.push_back({metric, Table::Align::Right});
  Table table(columns);
  for (const OutputMetrics& output : outputs) {
    std::vector<std::string> cells{output.name};
    for (const auto& [metric, unused] : all) {
      const auto found = std::ranges::find(output.metrics, metric, &Metrics::value_type::first);
      const bool counted = found != output.metrics.end() && !std::isnan(found->second);
      cells.push_back(counted ? fmt::format("{:.6g}", found->second) : "–");
    }
    table.add_row(std::move(cells));
  }
  out << '\n';
  table.print(out);
}

}  // namespace kaon
