#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "report/charts.h"
#include "report/plot.h"

namespace kaon {

namespace {

constexpr int kWidth = 640;
constexpr int kHeight = 400;

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void cover(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return !(high >= low); }
};

bool is_drawn(const CurveChart& chart, const Curve& curve, size_t i) {
  return std::isfinite(curve.x[i]) && std::isfinite(curve.y[i]) && (!chart.log_y || curve.y[i] > 0);
}

void draw_curve(Canvas& canvas, const CurveChart& chart, const Curve& curve, const Plot& plot, const Color& color) {
  std::vector<Point> points;
  const auto finish = [&] {
    if (points.size() > 1) canvas.line(points, {color, 2});
    if (points.size() == 1) canvas.dot(points.front(), 3, color);
    points.clear();
  };
  for (size_t i = 0; i < curve.x.size(); ++i) {
    if (!is_drawn(chart, curve, i)) {
      finish();  // a gap where there is no value
      continue;
    }
    const Point point{plot.x.at(curve.x[i]), plot.y.at(curve.y[i])};
    if (curve.stairs && !points.empty()) points.push_back({point.x, points.back().y});
    points.push_back(point);
  }
  finish();
  if (curve.stairs || curve.x.size() < 3 || curve.x.size() > 40) return;
  for (size_t i = 0; i < curve.x.size(); ++i) {
    if (is_drawn(chart, curve, i)) canvas.dot({plot.x.at(curve.x[i]), plot.y.at(curve.y[i])}, 3, color);
  }
}

}  // namespace

void draw_curves(const CurveChart& chart, const std::filesystem::path& path) {
  static constexpr Color kColors[] = {palette::kBlue, palette::kOrange, palette::kGreen, palette::kPurple,
                                      palette::kRed};
  Extent x;
  Extent y;
  std::vector<LegendEntry> legend;
  for (size_t k = 0; k < chart.curves.size(); ++k) {
    const Curve& curve = chart.curves[k];
    if (curve.x.size() != curve.y.size()) {
      fail(ErrorCode::InvalidInput, path.string(), "curve '{}' has {} x and {} y", curve.name, curve.x.size(),
           curve.y.size());
    }
    for (size_t i = 0; i < curve.x.size(); ++i) {
      if (!is_drawn(chart, curve, i)) continue;
      x.cover(curve.x[i]);
      y.cover(curve.y[i]);
    }
    if (!curve.name.empty()) legend.push_back({curve.name, kColors[k % std::size(kColors)], LegendEntry::Shape::Line});
  }
  Canvas canvas(path, kWidth, kHeight);
  double top = draw_heading(canvas, chart.title, chart.subtitle);
  top = draw_legend(canvas, legend, kEdge, top, kWidth - 2 * kEdge);
  if (x.empty()) {
    canvas.text("no values", {kWidth / 2.0, (top + kHeight) / 2}, {14, palette::kMuted, false, Align::Center});
    canvas.save();
    return;
  }
  const double aside = 0.02 * (x.high - x.low);
  const double margin = chart.log_y ? 0 : 0.05 * (y.high - y.low);
  const Plot plot = make_plot(canvas, top, Axis::Kind::Linear, x.low - aside, x.high + aside,
                              chart.log_y ? Axis::Kind::Log : Axis::Kind::Linear,
                              chart.log_y ? y.low / 1.2 : y.low - margin, chart.log_y ? y.high * 1.2 : y.high + margin);
  draw_axes(canvas, plot, {chart.x_label, chart.y_label + (chart.log_y ? ", log scale" : "")});
  for (size_t k = 0; k < chart.curves.size(); ++k) {
    draw_curve(canvas, chart, chart.curves[k], plot, kColors[k % std::size(kColors)]);
  }
  canvas.save();
}

}  // namespace kaon
