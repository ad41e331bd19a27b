#pragma once
#include <string>
#include <vector>

#include "report/axis.h"
#include "report/painter.h"

namespace kaon {

// What the charts have in common: headings, axes, legends.

constexpr double kEdge = 16;  ///< from the picture's border to what is drawn

/// Title and subtitle at the top left; returns the y below them.
double draw_heading(Canvas& canvas, const std::string& title, const std::string& subtitle);

struct LegendEntry {
  enum class Shape { Patch, Line, DashedLine };
  std::string name;
  Color color;
  Shape shape = Shape::Patch;
};

/// A row of entries from `x` on, more rows where they do not fit; returns the y below them.
double draw_legend(Canvas& canvas, const std::vector<LegendEntry>& entries, double x, double y, double width);

/// An area with two axes.
struct Plot {
  Box area;
  Axis x;
  Axis y;
};

struct PlotLabels {
  std::string x;
  std::string y;
};

/// The largest plot below `top` that leaves room for the labels of its axes.
Plot make_plot(Canvas& canvas, double top, Axis::Kind x_kind, double x_low, double x_high, Axis::Kind y_kind,
               double y_low, double y_high);
void draw_axes(Canvas& canvas, const Plot& plot, const PlotLabels& labels);

}  // namespace kaon
