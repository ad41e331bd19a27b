#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "report/charts.h"
#include "report/plot.h"

namespace kaon {

namespace {

constexpr double kCell = 104;
constexpr double kGap = 14;
constexpr double kLine = 14;  // of a caption

std::vector<std::string> lines_of(const std::string& caption) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin <= caption.size() && !caption.empty() && lines.size() < 2) {
    const size_t end = std::min(caption.find('\n', begin), caption.size());
    lines.push_back(caption.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

Color caption_color(Mark mark) {
  if (mark == Mark::None) return palette::kInk;
  return mark == Mark::Right ? palette::kGreen : palette::kRed;
}

}  // namespace

void draw_images(const ImageGrid& grid, const std::filesystem::path& path) {
  const auto count = static_cast<int>(grid.pictures.size());
  const int wanted = grid.columns > 0 ? grid.columns : static_cast<int>(std::ceil(std::sqrt(count * 1.6)));
  const int columns = std::clamp(wanted, 1, std::max(1, count));
  const int rows = std::max(1, (count + columns - 1) / columns);
  size_t caption_lines = 0;
  for (const Picture& picture : grid.pictures)
    caption_lines = std::max(caption_lines, lines_of(picture.caption).size());
  const double captions = static_cast<double>(caption_lines) * kLine + (caption_lines > 0 ? 4 : 0);
  const double heading = (grid.title.empty() ? 0 : 36) + (grid.subtitle.empty() ? 0 : 18);
  const double top = std::max(kEdge, heading + 8);
  const double width = 2 * kEdge + columns * (kCell + kGap) - kGap;
  const double height = top + rows * (kCell + captions + kGap) - kGap + kEdge;
  Canvas canvas(path, std::max(heading > 0 ? 420 : 1, static_cast<int>(width)), static_cast<int>(height));
  if (heading > 0) draw_heading(canvas, grid.title, grid.subtitle);
  for (int i = 0; i < count; ++i) {
    const Picture& picture = grid.pictures[static_cast<size_t>(i)];
    const int row = i / columns, column = i % columns;
    const double x = kEdge + column * (kCell + kGap);
    const double y = top + row * (kCell + captions + kGap);
    const double scale = kCell / std::max({1, picture.width, picture.height});
    const Box box{x + (kCell - picture.width * scale) / 2, y + (kCell - picture.height * scale) / 2,
                  picture.width * scale, picture.height * scale};
    canvas.image(picture.pixels, picture.width, picture.height, picture.channels, box);
    const Color color = caption_color(picture.mark);
    const Color border = picture.mark == Mark::Wrong ? palette::kRed : palette::kFrame;
    canvas.frame({box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1},
                 {border, picture.mark == Mark::Wrong ? 2.0 : 1.0});
    double baseline = y + kCell + 4 + kLine - 3;
    for (const std::string& line : lines_of(picture.caption)) {
      const TextStyle style{11, color, false, Align::Center};
      canvas.text(canvas.fit(line, kCell + kGap - 4, style), {x + kCell / 2, baseline}, style);
      baseline += kLine;
    }
  }
  canvas.save();
}

}  // namespace kaon
