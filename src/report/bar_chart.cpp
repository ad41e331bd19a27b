#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "report/charts.h"
#include "report/plot.h"

namespace kaon {

namespace {

constexpr double kRow = 15;
constexpr double kGap = 28;         // between columns
constexpr double kNameWidth = 250;  // at most
constexpr double kValueWidth = 62;
constexpr size_t kRowsPerColumn = 90;
constexpr size_t kColumns = 4;   // at most
constexpr double kDecades = 10;  // that a log scale shows below the largest value
constexpr Color kBarColor = rgb(0x5B8DC8);
constexpr TextStyle kName{10, palette::kInk, false, Align::Right};
constexpr TextStyle kTick{10, palette::kMuted, false, Align::Center};

struct BarGrid {
  size_t rows = 1;
  size_t columns = 1;
  double name_width = 0;
  double bar_width = 0;
  double top = 0;

  double column_width() const { return name_width + 8 + bar_width + kValueWidth; }
  double column_x(size_t column) const { return kEdge + static_cast<double>(column) * (column_width() + kGap); }
  double bottom() const { return top + static_cast<double>(rows) * kRow; }
};

Axis make_axis(const BarChart& chart) {
  double smallest = std::numeric_limits<double>::infinity();
  double largest = 0;
  for (const Bar& bar : chart.bars) {
    if (!std::isfinite(bar.value)) continue;
    largest = std::max(largest, bar.value);
    if (bar.value > 0) smallest = std::min(smallest, bar.value);
  }
  if (!(largest > 0)) smallest = largest = 1;
  if (!chart.log_scale) return {Axis::Kind::Linear, 0, largest, 0, 1};
  // The smallest bar must be seen, too.
  const double low = std::max(smallest * 0.7, largest * std::pow(10, -kDecades));
  return {Axis::Kind::Log, std::min(std::pow(10, std::floor(std::log10(low))), largest / 10), largest, 0, 1};
}

/// Whether each bar is among the `count` largest; what is not finite is worst.
std::vector<bool> find_worst(const BarChart& chart) {
  std::vector<size_t> order(chart.bars.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto badness = [&](size_t i) {
    const double value = chart.bars[i].value;
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return badness(a) > badness(b); });
  std::vector<bool> worst(order.size(), false);
  for (size_t i = 0; i < order.size(); ++i) {
    const double value = badness(order[i]);
    worst[order[i]] = value > 0 && order.size() > 1 && (static_cast<int64_t>(i) < chart.highlight || std::isinf(value));
  }
  return worst;
}

void draw_column(Canvas& canvas, const BarChart& chart, const BarGrid& grid, const Axis& axis,
                 const std::vector<bool>& worst, size_t column) {
  const double x = grid.column_x(column);
  const double bars_x = x + grid.name_width + 8;
  const size_t begin = column * grid.rows;
  const size_t end = std::min(chart.bars.size(), begin + grid.rows);
  const double bottom = grid.top + static_cast<double>(end - begin) * kRow;
  double free_from = 0;
  for (const Tick& tick : axis.ticks(std::max(2, static_cast<int>(grid.bar_width / 60)))) {
    const double at = std::floor(bars_x + axis.at(tick.value) * grid.bar_width) + 0.5;
    canvas.line({at, grid.top - 2}, {at, bottom + 2}, {palette::kGrid, 1});
    const double half = canvas.text_width(tick.label, kTick) / 2;
    if (tick.label.empty() || at - half < free_from) continue;
    free_from = at + half + 6;
    canvas.text(tick.label, {at, grid.top - 6}, kTick);
    canvas.text(tick.label, {at, bottom + 14}, kTick);
  }
  for (size_t i = begin; i < end; ++i) {
    const Bar& bar = chart.bars[i];
    const double y = grid.top + static_cast<double>(i - begin) * kRow;
    const Color color = worst[i] ? palette::kRed : kBarColor;
    TextStyle name = kName;
    name.bold = worst[i];
    canvas.text(canvas.fit(bar.name, grid.name_width, name), {bars_x - 8, y + 11}, name);
    double length = 0;
    if (std::isinf(bar.value) && bar.value > 0) {
      length = grid.bar_width;
    } else if (bar.value > 0) {
      length = std::max(1.0, axis.at(bar.value) * grid.bar_width);
    }
    canvas.fill(Box{bars_x, y + 3, length, kRow - 5}, color);
    canvas.text(short_number(bar.value), {bars_x + length + 5, y + 11},
                {10, worst[i] ? palette::kRed : palette::kMuted, worst[i]});
  }
  const double axis_x = std::floor(bars_x) + 0.5;
  canvas.line({axis_x, grid.top - 2}, {axis_x, bottom + 2}, {palette::kFrame, 1});
}

/// Measures on a sheet of its own: the size of the picture depends on its texts.
BarGrid make_grid(const BarChart& chart, const std::filesystem::path& path) {
  Canvas scratch(path, 1, 1);
  BarGrid grid;
  grid.columns = std::clamp((chart.bars.size() + kRowsPerColumn - 1) / kRowsPerColumn, size_t{1}, kColumns);
  grid.rows = std::max<size_t>(1, (chart.bars.size() + grid.columns - 1) / grid.columns);
  TextStyle bold = kName;
  bold.bold = true;
  for (const Bar& bar : chart.bars) grid.name_width = std::max(grid.name_width, scratch.text_width(bar.name, bold));
  grid.name_width = std::ceil(std::min(grid.name_width, kNameWidth));
  grid.bar_width = grid.columns == 1 ? 420 : 200;
  return grid;
}

}  // namespace

void draw_bars(const BarChart& chart, const std::filesystem::path& path) {
  BarGrid grid = make_grid(chart, path);
  const std::vector<bool> worst = find_worst(chart);
  const auto marked = std::count(worst.begin(), worst.end(), true);
  const double heading = chart.subtitle.empty() ? 36 : 54;
  grid.top = heading + 20 + 24;
  const double width = grid.column_x(grid.columns) - kGap + kEdge;
  const double height = grid.bottom() + 48;
  Canvas canvas(path, std::max(560, static_cast<int>(width)), static_cast<int>(height));
  const double top = draw_heading(canvas, chart.title, chart.subtitle);
  if (chart.bars.empty()) {
    canvas.text("no layers", {canvas.width() / 2.0, grid.top + 10}, {14, palette::kMuted, false, Align::Center});
    canvas.save();
    return;
  }
  std::vector<LegendEntry> legend{{chart.x_label + (chart.log_scale ? ", log scale" : ""), kBarColor}};
  if (marked > 0) {
    legend.push_back({marked == 1 ? "the largest" : fmt::format("the {} largest", marked), palette::kRed});
  }
  draw_legend(canvas, legend, kEdge, top, canvas.width() - 2 * kEdge);
  const Axis axis = make_axis(chart);
  for (size_t column = 0; column < grid.columns; ++column) draw_column(canvas, chart, grid, axis, worst, column);
  canvas.save();
}

}  // namespace kaon
