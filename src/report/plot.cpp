#include "report/plot.h"

#include <algorithm>
#include <cmath>

namespace kaon {

namespace {

constexpr TextStyle kTickText{10, palette::kMuted};
constexpr double kBelow = 46;  // tick labels and the axis' name

/// A line of one pixel is sharp in the middle of a pixel.
double sharp(double pixel) { return std::floor(pixel) + 0.5; }

int wanted_x_ticks(double width) { return std::max(2, static_cast<int>(width / 80)); }
int wanted_y_ticks(double height) { return std::max(2, static_cast<int>(height / 45)); }

}  // namespace

double draw_heading(Canvas& canvas, const std::string& title, const std::string& subtitle) {
  const double width = canvas.width() - 2 * kEdge;
  double y = 26;
  const TextStyle title_style{15, palette::kInk, true};
  canvas.text(canvas.fit(title, width, title_style), {kEdge, y}, title_style);
  if (!subtitle.empty()) {
    y += 18;
    const TextStyle subtitle_style{11, palette::kMuted};
    canvas.text(canvas.fit(subtitle, width, subtitle_style), {kEdge, y}, subtitle_style);
  }
  return y + 10;
}

double draw_legend(Canvas& canvas, const std::vector<LegendEntry>& entries, double x, double y, double width) {
  if (entries.empty()) return y;
  constexpr double kRow = 17;
  constexpr double kMark = 16;
  double at = x;
  double baseline = y + 12;
  for (const LegendEntry& entry : entries) {
    const TextStyle style{11, palette::kInk};
    const std::string name = canvas.fit(entry.name, width - kMark, style);
    const double needed = kMark + 5 + canvas.text_width(name, style) + 18;
    if (at > x && at + needed - 18 > x + width) {
      at = x;
      baseline += kRow;
    }
    if (entry.shape == LegendEntry::Shape::Patch) {
      canvas.fill(Box{at, baseline - 9, kMark - 4, 10}, entry.color);
    } else {
      const double dash = entry.shape == LegendEntry::Shape::DashedLine ? 4 : 0;
      canvas.line({at, baseline - 4}, {at + kMark, baseline - 4}, {entry.color, 1.75, dash});
    }
    canvas.text(name, {at + kMark + 5, baseline}, style);
    at += needed;
  }
  return baseline + 8;
}

Plot make_plot(Canvas& canvas, double top, Axis::Kind x_kind, double x_low, double x_high, Axis::Kind y_kind,
               double y_low, double y_high) {
  Box area{0, top + 4, 0, canvas.height() - top - 4 - kBelow};
  const Axis y(y_kind, y_low, y_high, area.bottom(), area.y);
  double widest = 0;
  for (const Tick& tick : y.ticks(wanted_y_ticks(area.height))) {
    widest = std::max(widest, canvas.text_width(tick.label, kTickText));
  }
  area.x = kEdge + 18 + std::ceil(widest);
  area.width = canvas.width() - area.x - kEdge - 4;
  return {area, Axis(x_kind, x_low, x_high, area.x, area.right()), y};
}

void draw_axes(Canvas& canvas, const Plot& plot, const PlotLabels& labels) {
  const Box& area = plot.area;
  for (const Tick& tick : plot.y.ticks(wanted_y_ticks(area.height))) {
    const double y = sharp(plot.y.at(tick.value));
    canvas.line({area.x, y}, {area.right(), y}, {palette::kGrid, 1});
    canvas.text(tick.label, {area.x - 6, y + 3.5}, {kTickText.size, kTickText.color, false, Align::Right});
  }
  double free_from = 0;
  for (const Tick& tick : plot.x.ticks(wanted_x_ticks(area.width))) {
    const double x = sharp(plot.x.at(tick.value));
    canvas.line({x, area.y}, {x, area.bottom() + 4}, {palette::kGrid, 1});
    const double half = canvas.text_width(tick.label, kTickText) / 2;
    if (x - half < free_from || x + half > canvas.width()) continue;
    free_from = x + half + 6;
    canvas.text(tick.label, {x, area.bottom() + 17}, {kTickText.size, kTickText.color, false, Align::Center});
  }
  const double bottom = sharp(area.bottom());
  canvas.line({area.x, bottom}, {area.right(), bottom}, {palette::kFrame, 1});
  const TextStyle name{11, palette::kInk, false, Align::Center};
  canvas.text(canvas.fit(labels.x, area.width, name), {area.x + area.width / 2, area.bottom() + 36}, name);
  TextStyle upward = name;
  upward.upward = true;
  canvas.text(canvas.fit(labels.y, area.height, name), {kEdge + 6, area.y + area.height / 2}, upward);
}

}  // namespace kaon
