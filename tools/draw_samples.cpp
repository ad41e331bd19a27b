// Draws the pictures that `kaon predict` is shown with: draw_samples FOLDER writes shirt.png and shoe.png, light on
// black as in Fashion-MNIST, by hand-set outlines.
#include <cairo/cairo.h>

#include <iostream>
#include <string>
#include <vector>

namespace {

constexpr int kSize = 280;

struct Point {
  double x, y;
};

/// A closed outline through the points, in units of a 28×28 picture.
void fill(cairo_t* cr, const std::vector<Point>& outline, double light) {
  constexpr double kUnit = kSize / 28.0;
  cairo_new_path(cr);
  for (const Point& point : outline) cairo_line_to(cr, point.x * kUnit, point.y * kUnit);
  cairo_close_path(cr);
  cairo_set_source_rgb(cr, light, light, light);
  cairo_fill(cr);
}

template <typename Draw>
void draw(const std::string& path, const Draw& outlines) {
  cairo_surface_t* surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, kSize, kSize);
  cairo_t* cr = cairo_create(surface);
  outlines(cr);
  const cairo_status_t status = cairo_surface_write_to_png(surface, path.c_str());
  if (status != CAIRO_STATUS_SUCCESS) std::cerr << path << ": " << cairo_status_to_string(status) << '\n';
  cairo_destroy(cr);
  cairo_surface_destroy(surface);
}

void shirt(cairo_t* cr) {
  fill(cr,
       {{9, 1},
        {12, 2.5},
        {16, 2.5},
        {19, 1},
        {22.5, 3},
        {26, 9},
        {22, 11},
        {20.5, 9},
        {20.5, 27},
        {7.5, 27},
        {7.5, 9},
        {6, 11},
        {2, 9},
        {5.5, 3}},
       0.78);
  fill(cr, {{11, 1.5}, {12, 2.5}, {16, 2.5}, {17, 1.5}, {16, 4}, {14, 4.8}, {12, 4}}, 0.45);
  fill(cr, {{9.5, 10}, {18.5, 10}, {18.5, 12}, {9.5, 12}}, 0.6);
}

void shoe(cairo_t* cr) {
  fill(cr,
       {{0.5, 17.5},
        {3, 16},
        {8, 14.5},
        {12.5, 11.5},
        {15.5, 9},
        {18, 9},
        {20, 10.5},
        {23, 10.5},
        {25, 9},
        {26.8, 9.2},
        {27.3, 14},
        {27.3, 18.5},
        {0.5, 18.5}},
       0.72);
  fill(cr, {{0.5, 18.2}, {27.3, 18.2}, {27.2, 20}, {0.8, 20}}, 0.93);
  fill(cr, {{9.5, 14.2}, {14.8, 10.2}, {15.8, 11}, {10.5, 15}}, 0.5);
  fill(cr, {{18, 13}, {20.5, 12}, {18.5, 17}, {16, 17}}, 0.9);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: draw_samples FOLDER\n";
    return 2;
  }
  const std::string folder = argv[1];
  draw(folder + "/shirt.png", shirt);
  draw(folder + "/shoe.png", shoe);
}
