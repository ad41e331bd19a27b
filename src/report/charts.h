#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "numerics/histogram.h"

namespace kaon {

// Pictures of plain data. The extension of the path, .png or .svg, decides the kind of file; files appear whole; calls
// on different paths may run at once. Values that are not finite are left out or named, never drawn.

struct HistogramSeries {
  std::string name;
  std::vector<double> edges;  ///< counts.size() + 1 rising edges, or both empty
  std::vector<int64_t> counts;
  double step = 0;  ///< distance of the codes of a quantized value, where it is one number: bars follow the codes
};

HistogramSeries histogram_series(std::string name, const Histogram& histogram, double step = 0);

struct HistogramChart {
  std::string title;     ///< layer and slot
  std::string subtitle;  ///< format, scale, numbers of interest
  std::string x_label = "value";
  std::string y_label = "count";
  std::vector<HistogramSeries> series;  ///< one, or two drawn over each other
  std::optional<double> min;            ///< of the data
  std::optional<double> max;
  std::optional<double> clip_low;  ///< what the quantizer can represent
  std::optional<double> clip_high;
  std::optional<bool> log_counts;  ///< unset: where counts differ so much that a linear scale would hide most of them
};

/// Throws InvalidInput when edges and counts do not belong together.
void draw_histogram(const HistogramChart& chart, const std::filesystem::path& path);

struct Bar {
  std::string name;
  double value = 0;
};

/// One horizontal bar per layer, in the order given; many layers go into several columns.
struct BarChart {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::vector<Bar> bars;
  bool log_scale = true;
  int64_t highlight = 5;  ///< that many of the largest values stand out
};

void draw_bars(const BarChart& chart, const std::filesystem::path& path);

struct Curve {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
  bool stairs = false;  ///< y holds until the next x
};

struct CurveChart {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::string y_label;
  std::vector<Curve> curves;
  bool log_y = false;
};

/// Throws InvalidInput when x and y of a curve differ in length.
void draw_curves(const CurveChart& chart, const std::filesystem::path& path);

enum class Mark { None, Right, Wrong };

struct Picture {
  int width = 0;
  int height = 0;
  int channels = 1;             ///< 1 gray, 3 RGB
  std::vector<uint8_t> pixels;  ///< height · width · channels
  std::string caption;          ///< up to two lines
  Mark mark = Mark::None;       ///< colours the caption
};

struct ImageGrid {
  std::string title;
  std::string subtitle;
  std::vector<Picture> pictures;
  int columns = 0;  ///< 0: as it looks best
};

/// Throws InvalidInput when a picture's pixels do not match its size.
void draw_images(const ImageGrid& grid, const std::filesystem::path& path);

}  // namespace kaon
