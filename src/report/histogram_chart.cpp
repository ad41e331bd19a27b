#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "report/charts.h"
#include "report/histogram_bars.h"
#include "report/plot.h"

namespace kaon {

namespace {

constexpr int kWidth = 640;
constexpr int kHeight = 400;
constexpr int64_t kBars = 160;  // more are hard to see and slow

void check(const HistogramSeries& series, const std::string& where) {
  const bool empty = series.edges.empty() && series.counts.empty();
  if (!empty && series.edges.size() != series.counts.size() + 1) {
    fail(ErrorCode::InvalidInput, where, "a histogram of {} counts with {} edges; one more edge than counts is needed",
         series.counts.size(), series.edges.size());
  }
  for (size_t i = 0; i + 1 < series.edges.size(); ++i) {
    if (!(series.edges[i] < series.edges[i + 1]) || !std::isfinite(series.edges[i + 1] - series.edges[i])) {
      fail(ErrorCode::InvalidInput, where, "edge {} of a histogram is {} and the next {}; they must rise and be finite",
           i, series.edges[i], series.edges[i + 1]);
    }
  }
}

bool has_counts(const HistogramSeries& series) {
  return std::any_of(series.counts.begin(), series.counts.end(), [](int64_t count) { return count > 0; });
}

struct Heights {
  double smallest = std::numeric_limits<double>::infinity();  ///< of those above zero
  double largest = 0;
  double median = 0;
};

Heights measure(const std::vector<Bars>& all) {
  std::vector<double> heights;
  for (const Bars& bars : all) {
    std::copy_if(bars.heights.begin(), bars.heights.end(), std::back_inserter(heights), [](double h) { return h > 0; });
  }
  Heights out;
  if (heights.empty()) return out;
  std::sort(heights.begin(), heights.end());
  out.smallest = heights.front();
  out.largest = heights.back();
  out.median = heights[heights.size() / 2];
  return out;
}

std::pair<double, double> x_range(const HistogramChart& chart, const std::vector<Bars>& all) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  const auto cover = [&](double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  };
  for (const Bars& bars : all) {
    cover(bars.edges.front());
    cover(bars.edges.back());
  }
  for (const auto& value : {chart.min, chart.max}) {
    if (value && std::isfinite(*value)) cover(*value);
  }
  if (!(high >= low)) return {-1, 1};
  // A range that is far too wide must not squeeze the data into one bar: its ends become arrows at the border.
  const double reach = 0.6 * (high - low);
  const double data_low = low;
  const double data_high = high;
  for (const auto& value : {chart.clip_low, chart.clip_high}) {
    if (value && *value >= data_low - reach && *value <= data_high + reach) cover(*value);
  }
  double margin = 0.02 * (high - low);
  // A bin around a constant is as narrow as floats are close: zoom out until numbers can be read.
  const double readable = 0.02 * std::max(std::abs(low), std::abs(high));
  if (high - low < readable * 1e-3) margin = readable;
  return {low - margin, high + margin};
}

/// Filled, or as an outline over another one.
void draw_series(Canvas& canvas, const Plot& plot, const Bars& bars, const Color& color, bool over) {
  const double base = plot.area.bottom();
  const double widen = bars.heights.size() == 1 ? 2 : 0;
  std::vector<Point> outline;
  const auto finish = [&] {
    if (outline.empty()) return;
    outline.push_back({outline.back().x, base});
    if (!over) canvas.fill(outline, color.with_alpha(0.42));
    canvas.line(outline, {color.with_alpha(over ? 1 : 0.85), over ? 1.5 : 1});
    outline.clear();
  };
  for (size_t i = 0; i < bars.heights.size(); ++i) {
    if (!(bars.heights[i] > 0)) {
      finish();
      continue;
    }
    const double left = plot.x.at(bars.edges[i]) - widen;
    const double top = plot.y.at(bars.heights[i]);
    if (outline.empty()) outline.push_back({left, base});
    outline.push_back({left, top});
    outline.push_back({plot.x.at(bars.edges[i + 1]) + widen, top});
  }
  finish();
}

/// A vertical line, or an arrow at the border that points to where it would be.
void draw_mark(Canvas& canvas, const Plot& plot, double value, const Stroke& stroke) {
  if (!std::isfinite(value)) return;
  const Box& area = plot.area;
  if (value >= plot.x.low() && value <= plot.x.high()) {
    const double x = plot.x.at(value);
    canvas.line({x, area.y}, {x, area.bottom()}, stroke);
    return;
  }
  const double way = value < plot.x.low() ? -1 : 1;
  const double tip = way < 0 ? area.x : area.right();
  const double y = area.y + 12;
  canvas.line({tip - way * 26, y}, {tip - way * 8, y}, {stroke.color, 2});
  const Point head[] = {{tip, y}, {tip - way * 9, y - 5}, {tip - way * 9, y + 5}};
  canvas.fill(head, stroke.color);
}

std::string range_text(const char* name, const std::optional<double>& low, const std::optional<double>& high) {
  if (low && high) return fmt::format("{} {} … {}", name, short_number(*low), short_number(*high));
  return fmt::format("{} {}", name, short_number(low ? *low : *high));
}

}  // namespace

HistogramSeries histogram_series(std::string name, const Histogram& histogram, double step) {
  HistogramSeries series{std::move(name), {}, {}, step};
  if (histogram.count() == 0) return series;
  series.edges = histogram.edges();
  series.counts.assign(histogram.counts().begin(), histogram.counts().end());
  return series;
}

void draw_histogram(const HistogramChart& chart, const std::filesystem::path& path) {
  static constexpr Color kColors[] = {palette::kBlue, palette::kOrange};
  constexpr Stroke kRange{palette::kInk.with_alpha(0.75), 1, 2};
  constexpr Stroke kClip{palette::kRed, 1.5, 5};
  if (chart.series.empty() || chart.series.size() > 2) {
    fail(ErrorCode::InvalidInput, path.string(), "{} histograms in a chart; it takes one or two", chart.series.size());
  }
  std::vector<Bars> all;
  std::vector<Color> colors;
  std::vector<LegendEntry> legend;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    check(chart.series[i], path.string());
    if (!has_counts(chart.series[i])) continue;
    all.push_back(join_bins(chart.series[i], kBars));
    colors.push_back(kColors[i]);
    if (chart.series[i].name.empty()) continue;
    legend.push_back({chart.series[i].name, kColors[i], i == 0 ? LegendEntry::Shape::Patch : LegendEntry::Shape::Line});
  }
  const double unit = all.empty() ? 1 : all.front().width;
  for (Bars& bars : all) {
    for (double& height : bars.heights) height *= unit;
  }
  if (chart.min || chart.max) {
    legend.push_back({range_text("data", chart.min, chart.max), kRange.color, LegendEntry::Shape::DashedLine});
  }
  if (chart.clip_low || chart.clip_high) {
    legend.push_back(
        {range_text("representable", chart.clip_low, chart.clip_high), kClip.color, LegendEntry::Shape::DashedLine});
  }

  Canvas canvas(path, kWidth, kHeight);
  double top = draw_heading(canvas, chart.title, chart.subtitle);
  top = draw_legend(canvas, legend, kEdge, top, kWidth - 2 * kEdge);
  if (all.empty()) {
    canvas.text("no finite values", {kWidth / 2.0, (top + kHeight) / 2}, {14, palette::kMuted, false, Align::Center});
    canvas.save();
    return;
  }
  const Heights heights = measure(all);
  const bool log_counts = chart.log_counts.value_or(heights.largest > 50 * heights.median);
  const auto [x_low, x_high] = x_range(chart, all);
  const double y_low = log_counts ? std::max(heights.smallest / 2, heights.largest * 1e-12) : 0;
  const Plot plot =
      make_plot(canvas, top, Axis::Kind::Linear, x_low, x_high, log_counts ? Axis::Kind::Log : Axis::Kind::Linear,
                y_low, log_counts ? heights.largest * 2 : heights.largest * 1.05);
  const std::string bins = all.front().heights.size() > 1 ? " in bins of " + short_number(unit, 2) : "";
  draw_axes(canvas, plot, {chart.x_label, chart.y_label + bins + (log_counts ? ", log scale" : "")});
  canvas.clip(plot.area);
  if (plot.x.low() < 0 && plot.x.high() > 0) {
    canvas.line({plot.x.at(0), plot.area.y}, {plot.x.at(0), plot.area.bottom()}, {palette::kFrame, 1});
  }
  for (size_t i = 0; i < all.size(); ++i) draw_series(canvas, plot, all[i], colors[i], i > 0);
  if (chart.min) draw_mark(canvas, plot, *chart.min, kRange);
  if (chart.max) draw_mark(canvas, plot, *chart.max, kRange);
  if (chart.clip_low) draw_mark(canvas, plot, *chart.clip_low, kClip);
  if (chart.clip_high) draw_mark(canvas, plot, *chart.clip_high, kClip);
  canvas.unclip();
  canvas.save();
}

}  // namespace kaon
