#include "report/painter.h"

#include <cairo/cairo-svg.h>
#include <cairo/cairo.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "report/png_writer.h"
#include "report/utf8.h"

namespace kaon {

namespace {

constexpr int kMaxSide = 32767;  // of a Cairo surface

cairo_status_t append_bytes(void* out, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(out)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

/// Made once: asking fontconfig for a font takes far longer than drawing with it.
cairo_font_face_t* font(bool bold) {
  static cairo_font_face_t* const faces[] = {
      cairo_toy_font_face_create("DejaVu Sans", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL),
      cairo_toy_font_face_create("DejaVu Sans", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_BOLD)};
  return faces[bold ? 1 : 0];
}

}  // namespace

struct Canvas::Surface {
  bool svg = false;
  bool has_image = false;
  std::string svg_text;
  cairo_surface_t* surface = nullptr;
  cairo_t* cairo = nullptr;

  ~Surface() {
    if (cairo != nullptr) cairo_destroy(cairo);
    if (surface != nullptr) cairo_surface_destroy(surface);
  }

  void source(const Color& color) { cairo_set_source_rgba(cairo, color.red, color.green, color.blue, color.alpha); }

  void use(const Stroke& stroke) {
    source(stroke.color);
    cairo_set_line_width(cairo, stroke.width);
    cairo_set_line_join(cairo, CAIRO_LINE_JOIN_ROUND);
    cairo_set_dash(cairo, &stroke.dash, stroke.dash > 0 ? 1 : 0, 0);
  }

  void use(const TextStyle& style) {
    source(style.color);
    cairo_set_font_face(cairo, font(style.bold));
    cairo_set_font_size(cairo, style.size);
  }

  void path(std::span<const Point> points) {
    for (const Point& point : points) cairo_line_to(cairo, point.x, point.y);
  }

  double advance(const std::string& text, const TextStyle& style) {
    use(style);
    cairo_text_extents_t extents;
    cairo_text_extents(cairo, text.c_str(), &extents);
    return extents.x_advance;
  }

  void check(const std::filesystem::path& path) const {
    cairo_status_t status = cairo_status(cairo);
    if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_status(surface);
    if (status != CAIRO_STATUS_SUCCESS) {
      fail(ErrorCode::Internal, path.string(), "cannot draw: {}", cairo_status_to_string(status));
    }
  }
};

Canvas::Canvas(std::filesystem::path path, int width, int height)
    : path_(std::move(path)), width_(width), height_(height), surface_(std::make_unique<Surface>()) {
  const std::string extension = path_.extension().string();
  if (extension != ".png" && extension != ".svg") {
    fail(ErrorCode::InvalidInput, path_.string(), "pictures are written as .png or .svg, not '{}'", extension);
  }
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide) {
    fail(ErrorCode::InvalidInput, path_.string(), "a picture of {} x {} pixels; its sides may be 1 to {}", width,
         height, kMaxSide);
  }
  surface_->svg = extension == ".svg";
  surface_->surface = surface_->svg
                          ? cairo_svg_surface_create_for_stream(append_bytes, &surface_->svg_text, width, height)
                          : cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
  if (surface_->svg) cairo_svg_surface_set_document_unit(surface_->surface, CAIRO_SVG_UNIT_PX);
  surface_->cairo = cairo_create(surface_->surface);
  surface_->check(path_);

  cairo_font_options_t* options = cairo_font_options_create();
  cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_SLIGHT);
  cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  cairo_set_font_options(surface_->cairo, options);
  cairo_font_options_destroy(options);

  surface_->source(palette::kPaper);
  cairo_paint(surface_->cairo);
}

Canvas::~Canvas() = default;

void Canvas::fill(const Box& box, const Color& color) { fill(std::span(&box, 1), color); }

void Canvas::fill(std::span<const Box> boxes, const Color& color) {
  for (const Box& box : boxes) cairo_rectangle(surface_->cairo, box.x, box.y, box.width, box.height);
  surface_->source(color);
  cairo_fill(surface_->cairo);
}

void Canvas::fill(std::span<const Point> polygon, const Color& color) {
  surface_->path(polygon);
  surface_->source(color);
  cairo_fill(surface_->cairo);
}

void Canvas::line(Point from, Point to, const Stroke& stroke) {
  const Point points[] = {from, to};
  line(points, stroke);
}

void Canvas::line(std::span<const Point> points, const Stroke& stroke) {
  surface_->path(points);
  surface_->use(stroke);
  cairo_stroke(surface_->cairo);
}

void Canvas::frame(const Box& box, const Stroke& stroke) {
  cairo_rectangle(surface_->cairo, box.x, box.y, box.width, box.height);
  surface_->use(stroke);
  cairo_stroke(surface_->cairo);
}

void Canvas::dot(Point at, double radius, const Color& color) {
  cairo_new_sub_path(surface_->cairo);
  cairo_arc(surface_->cairo, at.x, at.y, radius, 0, 6.283185307179586);
  surface_->source(color);
  cairo_fill(surface_->cairo);
}

void Canvas::text(std::string_view text, Point at, const TextStyle& style) {
  const std::string clean = printable_utf8(text);
  double shift = 0;
  if (style.align != Align::Left) shift = surface_->advance(clean, style) * (style.align == Align::Right ? -1 : -0.5);
  surface_->use(style);
  cairo_t* cairo = surface_->cairo;
  if (style.upward) {
    cairo_save(cairo);
    cairo_translate(cairo, at.x, at.y);
    cairo_rotate(cairo, -1.5707963267948966);
    cairo_move_to(cairo, shift, 0);
    cairo_show_text(cairo, clean.c_str());
    cairo_restore(cairo);
  } else {
    cairo_move_to(cairo, at.x + shift, at.y);
    cairo_show_text(cairo, clean.c_str());
  }
  cairo_new_path(cairo);  // show_text leaves a current point, to which the next path would connect
}

double Canvas::text_width(std::string_view text, const TextStyle& style) {
  return surface_->advance(printable_utf8(text), style);
}

std::string Canvas::fit(std::string_view text, double width, const TextStyle& style) {
  std::string clean = printable_utf8(text);
  if (surface_->advance(clean, style) <= width) return clean;
  // The end of a layer's name tells more than its beginning.
  const std::vector<std::string_view> letters = utf8_letters(clean);
  const auto shortened = [&](size_t kept) {
    const size_t head = kept * 2 / 5;
    std::string out;
    for (size_t i = 0; i < head; ++i) out += letters[i];
    out += "…";
    for (size_t i = letters.size() - (kept - head); i < letters.size(); ++i) out += letters[i];
    return out;
  };
  size_t fits = 0;
  size_t too_many = letters.size();
  while (fits + 1 < too_many) {
    const size_t middle = (fits + too_many) / 2;
    (surface_->advance(shortened(middle), style) <= width ? fits : too_many) = middle;
  }
  return shortened(fits);
}

void Canvas::image(std::span<const uint8_t> pixels, int width, int height, int channels, const Box& into) {
  const bool fits =
      width > 0 && height > 0 && width <= kMaxSide && height <= kMaxSide && (channels == 1 || channels == 3) &&
      pixels.size() == static_cast<size_t>(width) * static_cast<size_t>(height) * static_cast<size_t>(channels);
  if (!fits) {
    fail(ErrorCode::InvalidInput, path_.string(), "{} bytes for an image of {} x {} pixels and {} channels",
         pixels.size(), width, height, channels);
  }
  cairo_surface_t* source = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
  unsigned char* rows = cairo_image_surface_get_data(source);
  const auto stride = static_cast<size_t>(cairo_image_surface_get_stride(source));
  const uint8_t* in = pixels.data();
  for (int y = 0; rows != nullptr && y < height; ++y) {
    auto* row = reinterpret_cast<uint32_t*>(rows + static_cast<size_t>(y) * stride);
    for (int x = 0; x < width; ++x, in += channels) {
      row[x] = uint32_t{in[0]} << 16 | uint32_t{in[channels / 2]} << 8 | in[channels - 1];
    }
  }
  cairo_surface_mark_dirty(source);
  surface_->has_image = true;
  cairo_t* cairo = surface_->cairo;
  cairo_save(cairo);
  cairo_translate(cairo, into.x, into.y);
  cairo_scale(cairo, into.width / width, into.height / height);
  cairo_set_source_surface(cairo, source, 0, 0);
  cairo_pattern_set_filter(cairo_get_source(cairo), CAIRO_FILTER_NEAREST);
  cairo_rectangle(cairo, 0, 0, width, height);
  cairo_fill(cairo);
  cairo_restore(cairo);
  cairo_surface_destroy(source);
}

void Canvas::clip(const Box& box) {
  cairo_rectangle(surface_->cairo, box.x, box.y, box.width, box.height);
  cairo_clip(surface_->cairo);
}

void Canvas::unclip() { cairo_reset_clip(surface_->cairo); }

void Canvas::save() {
  surface_->check(path_);
  AtomicFile file(path_);
  if (surface_->svg) {
    cairo_surface_finish(surface_->surface);
    file.write(surface_->svg_text);
  } else {
    cairo_surface_flush(surface_->surface);
    file.write(encode_png(cairo_image_surface_get_data(surface_->surface), width_, height_,
                          cairo_image_surface_get_stride(surface_->surface), surface_->has_image, path_.string()));
  }
  file.commit();
}

}  // namespace kaon
