#include "report/charts.h"

#include <cairo/cairo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/parallel.h"
#include "report/histogram_bars.h"

namespace kaon {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::filesystem::path file(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "kaon_charts_test";
  std::filesystem::create_directories(folder);
  return folder / name;
}

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct Pixels {
  int width = 0;
  int height = 0;
  std::map<uint32_t, int64_t> colors;

  int64_t of(uint32_t rgb) const { return colors.contains(rgb) ? colors.at(rgb) : 0; }
};

/// As another program reads the file.
Pixels decode(const std::filesystem::path& path) {
  cairo_surface_t* surface = cairo_image_surface_create_from_png(path.c_str());
  EXPECT_EQ(cairo_surface_status(surface), CAIRO_STATUS_SUCCESS) << path;
  Pixels out{cairo_image_surface_get_width(surface), cairo_image_surface_get_height(surface), {}};
  const unsigned char* data = cairo_image_surface_get_data(surface);
  const int stride = cairo_image_surface_get_stride(surface);
  for (int y = 0; y < out.height; ++y) {
    const auto* row = reinterpret_cast<const uint32_t*>(data + static_cast<size_t>(y) * static_cast<size_t>(stride));
    for (int x = 0; x < out.width; ++x) ++out.colors[row[x] & 0xFFFFFF];
  }
  cairo_surface_destroy(surface);
  return out;
}

/// Every element of an XML text is closed, in order.
bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  size_t elements = 0;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    at = end;
    if (tag.starts_with("?") || tag.starts_with("!")) continue;
    const std::string name =
        tag.substr(tag.starts_with("/") ? 1 : 0, tag.find_first_of(" \n/", 1) - (tag.starts_with("/") ? 1 : 0));
    ++elements;
    if (tag.starts_with("/")) {
      if (open.empty() || tag.substr(1) != open.back()) return false;
      open.pop_back();
    } else if (!tag.ends_with("/")) {
      open.push_back(name);
    }
  }
  return open.empty() && elements > 2;
}

std::vector<float> normal_values(size_t count, float spread) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Histogram histogram_of(const std::vector<float>& values) {
  Histogram histogram(512);
  histogram.update(FloatView(values));
  return histogram;
}

HistogramChart sample_histogram() {
  const std::vector<float> values = normal_values(20000, 0.1F);
  std::vector<float> rounded(values);
  for (float& value : rounded) value = 0.004F * std::nearbyint(value / 0.004F);
  HistogramChart chart;
  chart.title = "layer · weight";
  chart.subtitle = "int8";
  chart.series = {histogram_series("float", histogram_of(values)),
                  histogram_series("quantized", histogram_of(rounded), 0.004)};
  chart.min = -0.4;
  chart.max = 0.4;
  chart.clip_low = -0.45;
  chart.clip_high = 0.45;
  return chart;
}

TEST(Charts, HistogramIsAPicture) {
  draw_histogram(sample_histogram(), file("histogram.png"));
  const Pixels pixels = decode(file("histogram.png"));
  EXPECT_EQ(pixels.width, 640);
  EXPECT_EQ(pixels.height, 400);
  EXPECT_GT(pixels.of(0xFFFFFF), 100000);
  // The area of the float values: blue at 42 % over white.
  EXPECT_GT(pixels.of(0xA8C2E0) + pixels.of(0xA7C1E0) + pixels.of(0xA8C2DF) + pixels.of(0xA7C1DF), 20000);
  draw_histogram(sample_histogram(), file("histogram.svg"));
  const std::string svg = read(file("histogram.svg"));
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  EXPECT_NE(svg.find("width=\"640px\""), std::string::npos);
  EXPECT_TRUE(is_well_formed(svg));
}

TEST(Charts, TheSameInputGivesTheSameFile) {
  draw_histogram(sample_histogram(), file("first.png"));
  draw_histogram(sample_histogram(), file("second.png"));
  EXPECT_EQ(read(file("first.png")), read(file("second.png")));
  EXPECT_LT(std::filesystem::file_size(file("first.png")), 40000U);
}

TEST(Charts, ThreadsDrawAtOnce) {
  draw_histogram(sample_histogram(), file("alone.png"));
  const std::string expected = read(file("alone.png"));
  constexpr int64_t kCount = 64;
  set_thread_count(8);
  parallel_for(0, kCount, 1, [](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) draw_histogram(sample_histogram(), file("many" + std::to_string(i) + ".png"));
  });
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(read(file("many" + std::to_string(i) + ".png")), expected) << i;
}

TEST(Charts, HistogramTakesAnything) {
  HistogramChart chart;
  chart.title = std::string(5000, 'x') + "\xff\x01</svg>";
  chart.subtitle = "日本語 \xC3";
  chart.series = {histogram_series("", Histogram(512))};
  chart.min = kNan;
  chart.max = kInf;
  chart.clip_low = -kInf;
  chart.clip_high = kNan;
  for (const char* name : {"empty.png", "empty.svg"}) draw_histogram(chart, file(name));
  EXPECT_TRUE(is_well_formed(read(file("empty.svg"))));

  for (const float value : {0.0F, 0.37F, -1e30F, 1e-40F, std::numeric_limits<float>::max()}) {
    chart.series = {histogram_series("float", histogram_of(std::vector<float>(100, value))),
                    histogram_series("quantized", histogram_of(std::vector<float>(100, value)), 1e-30)};
    draw_histogram(chart, file("constant.png"));
    EXPECT_GT(decode(file("constant.png")).colors.size(), 10U) << value;
  }
  const float huge = std::numeric_limits<float>::max();
  chart.series = {histogram_series("float", histogram_of({-huge, huge, 0, std::numeric_limits<float>::quiet_NaN()}))};
  chart.series.front().step = 1e-38;
  draw_histogram(chart, file("huge.png"));
  EXPECT_EQ(decode(file("huge.png")).width, 640);
}

TEST(Charts, WrongHistogramsAreNamed) {
  HistogramChart chart;
  EXPECT_THROW(draw_histogram(chart, file("x.png")), Error);
  chart.series = {{"a", {0, 1}, {1, 2}}};
  EXPECT_THROW(draw_histogram(chart, file("x.png")), Error);
  chart.series = {{"a", {0, 1, 1}, {1, 2}}};
  EXPECT_THROW(draw_histogram(chart, file("x.png")), Error);
  chart.series = {{"a", {0, kNan, 1}, {1, 2}}};
  EXPECT_THROW(draw_histogram(chart, file("x.png")), Error);
  EXPECT_THROW(draw_histogram(sample_histogram(), file("x.gif")), Error);
  EXPECT_THROW(draw_histogram(sample_histogram(), file("missing") / "x.png"), Error);
  EXPECT_FALSE(std::filesystem::exists(file("x.png")));
}

TEST(Charts, BarsKeepEveryCount) {
  const HistogramChart chart = sample_histogram();
  for (const HistogramSeries& series : chart.series) {
    for (const int64_t limit : {1, 7, 160, 100000}) {
      const Bars bars = join_bins(series, limit);
      ASSERT_EQ(bars.edges.size(), bars.heights.size() + 1);
      EXPECT_LE(static_cast<int64_t>(bars.heights.size()), limit + 2);
      double total = 0;
      for (size_t i = 0; i < bars.heights.size(); ++i) total += bars.heights[i] * (bars.edges[i + 1] - bars.edges[i]);
      EXPECT_NEAR(total, 20000, 1e-6) << limit;
    }
  }
}

/// Codes that do not line up with the bins must not look like structure: flat data stays flat.
TEST(Charts, BarsFollowTheCodes) {
  for (const double step : {0.00731, 0.0113, 0.03, 0.125}) {
    std::vector<float> values;
    for (int code = -100; code <= 100; ++code) values.insert(values.end(), 50, static_cast<float>(code * step));
    const Bars bars = join_bins(histogram_series("", histogram_of(values), step), 1000);
    ASSERT_EQ(bars.heights.size(), 201U) << step;
    for (const double height : bars.heights) EXPECT_NEAR(height * step, 50, 1e-6) << step;
    EXPECT_NEAR((bars.edges[100] + bars.edges[101]) / 2, 0, 1e-9);
  }
}

BarChart sample_bars(size_t count) {
  BarChart chart;
  chart.title = "Weight error";
  chart.x_label = "mean relative error";
  for (size_t i = 0; i < count; ++i)
    chart.bars.push_back({"layer." + std::to_string(i), 0.001 * static_cast<double>(i + 1)});
  return chart;
}

TEST(Charts, BarsOfAnyNumberOfLayers) {
  for (const size_t count : {0, 1, 2, 53, 300, 500, 3000}) {
    draw_bars(sample_bars(count), file("bars.png"));
    const Pixels pixels = decode(file("bars.png"));
    EXPECT_LE(pixels.width, 2400) << count;
    EXPECT_LE(pixels.height, std::max<size_t>(1600, 200 + count * 15 / 4)) << count;
    if (count >= 2) {
      EXPECT_GT(pixels.of(0xC62F2F), 3000) << count;
      EXPECT_EQ(pixels.of(0x5B8DC8) > 1000, count > 5) << count;
    }
  }
  BarChart chart = sample_bars(4);
  chart.bars[0] = {std::string(3000, 'n'), kNan};
  chart.bars[1].value = kInf;
  chart.bars[2].value = 0;
  chart.bars[3].value = -1;
  for (const bool log_scale : {false, true}) {
    chart.log_scale = log_scale;
    draw_bars(chart, file("odd.svg"));
    EXPECT_TRUE(is_well_formed(read(file("odd.svg"))));
  }
}

TEST(Charts, Curves) {
  CurveChart chart;
  chart.title = "Training";
  chart.curves = {{"loss", {1, 2, 3, 4}, {0.5, kNan, 0.2, 0.1}}, {"one", {2}, {0.3}}, {"none", {}, {}}};
  for (const bool log_y : {false, true}) {
    chart.log_y = log_y;
    draw_curves(chart, file("curve.png"));
    EXPECT_GT(decode(file("curve.png")).of(0x2F6DB5), 20);
  }
  chart.curves = {{"flat", {1, 1}, {0, 0}, true}};
  draw_curves(chart, file("curve.svg"));
  EXPECT_TRUE(is_well_formed(read(file("curve.svg"))));
  chart.curves = {};
  draw_curves(chart, file("curve.png"));
  chart.curves = {{"wrong", {1, 2}, {1}}};
  EXPECT_THROW(draw_curves(chart, file("curve.png")), Error);
}

TEST(Charts, ImagesKeepTheirPixels) {
  ImageGrid grid;
  grid.title = "Samples";
  for (int i = 0; i < 5; ++i) {
    Picture picture{8, 4, i % 2 == 0 ? 1 : 3, {}, "caption\nof two lines", i == 0 ? Mark::Wrong : Mark::Right};
    picture.pixels.assign(static_cast<size_t>(32 * picture.channels), static_cast<uint8_t>(90 + i));
    grid.pictures.push_back(picture);
  }
  draw_images(grid, file("images.png"));
  const Pixels pixels = decode(file("images.png"));
  for (uint32_t i = 0; i < 5; ++i) EXPECT_GT(pixels.of((90 + i) * 0x010101), 104 * 48) << i;
  draw_images(grid, file("images.svg"));
  EXPECT_TRUE(is_well_formed(read(file("images.svg"))));
  grid.pictures.front().pixels.pop_back();
  EXPECT_THROW(draw_images(grid, file("images.png")), Error);
  draw_images({}, file("images.png"));
}

}  // namespace
}  // namespace kaon
