#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kaon {

struct Color {
  double red = 0;
  double green = 0;
  double blue = 0;
  double alpha = 1;

  constexpr Color with_alpha(double value) const { return {red, green, blue, value}; }
};

/// 0xRRGGBB
constexpr Color rgb(uint32_t hex) {
  return {((hex >> 16) & 255) / 255.0, ((hex >> 8) & 255) / 255.0, (hex & 255) / 255.0, 1};
}

/// The colours of every picture, picked to be told apart by colour-blind readers too.
namespace palette {
constexpr Color kInk = rgb(0x1F2933);
constexpr Color kMuted = rgb(0x616E7C);
constexpr Color kGrid = rgb(0xE4E7EB);
constexpr Color kFrame = rgb(0x9AA5B1);
constexpr Color kPaper = rgb(0xFFFFFF);
constexpr Color kBlue = rgb(0x2F6DB5);
constexpr Color kOrange = rgb(0xE07B00);
constexpr Color kRed = rgb(0xC62F2F);
constexpr Color kGreen = rgb(0x2B8A57);
constexpr Color kPurple = rgb(0x7A4FB3);
}  // namespace palette

struct Point {
  double x = 0;
  double y = 0;
};

/// In pixels; y grows downwards.
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;

  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

struct Stroke {
  Color color = palette::kInk;
  double width = 1;
  double dash = 0;  ///< length of a dash and of the gap after it; 0: solid
};

enum class Align { Left, Center, Right };

struct TextStyle {
  double size = 12;
  Color color = palette::kInk;
  bool bold = false;
  Align align = Align::Left;
  bool upward = false;  ///< turned a quarter to the left
};

/// A white sheet that becomes a PNG or an SVG, as the extension of its path says. Different canvases may be used on
/// different threads at once. Texts may hold any bytes: what is not UTF-8 is drawn as the replacement character.
class Canvas {
 public:
  /// Throws InvalidInput for another extension or a size outside 1…32767. Nothing is written before save().
  Canvas(std::filesystem::path path, int width, int height);
  ~Canvas();
  Canvas(const Canvas&) = delete;
  Canvas& operator=(const Canvas&) = delete;

  int width() const { return width_; }
  int height() const { return height_; }

  void fill(const Box& box, const Color& color);
  void fill(std::span<const Point> polygon, const Color& color);
  /// Many boxes of one colour.
  void fill(std::span<const Box> boxes, const Color& color);
  void line(Point from, Point to, const Stroke& stroke);
  void line(std::span<const Point> points, const Stroke& stroke);
  void frame(const Box& box, const Stroke& stroke);
  void dot(Point at, double radius, const Color& color);

  /// `at` is on the baseline.
  void text(std::string_view text, Point at, const TextStyle& style = {});
  double text_width(std::string_view text, const TextStyle& style = {});
  /// The text, with its middle cut out where it is wider than `width`.
  std::string fit(std::string_view text, double width, const TextStyle& style = {});

  /// `pixels`: rows of width · channels bytes; channels 1 (gray) or 3 (RGB). Enlarged without smoothing.
  void image(std::span<const uint8_t> pixels, int width, int height, int channels, const Box& into);

  /// Everything that is drawn until the next clip stays inside; unclip() ends it.
  void clip(const Box& box);
  void unclip();

  /// Writes the file under a temporary name and renames it.
  void save();

 private:
  struct Surface;
  std::filesystem::path path_;
  int width_;
  int height_;
  std::unique_ptr<Surface> surface_;
};

}  // namespace kaon
