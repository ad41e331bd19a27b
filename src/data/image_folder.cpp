#include <algorithm>
#include <charconv>
#include <map>

#include "base/enum_names.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/parallel.h"
#include "data/description.h"
#include "data/image.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

enum class Color { Rgb, Bgr, Gray };
enum class PixelLayout { Nchw, Nhwc };

}  // namespace

template <>
struct EnumNames<Color> {
  static constexpr std::string_view kKind = "color";
  static constexpr std::pair<std::string_view, Color> kAll[] = {
      {"rgb", Color::Rgb}, {"bgr", Color::Bgr}, {"gray", Color::Gray}};
};

template <>
struct EnumNames<PixelLayout> {
  static constexpr std::string_view kKind = "layout";
  static constexpr std::pair<std::string_view, PixelLayout> kAll[] = {{"nchw", PixelLayout::Nchw},
                                                                      {"nhwc", PixelLayout::Nhwc}};
};

namespace {

constexpr int64_t kMostSide = 1 << 15;

struct Size {
  int64_t height = 0;
  int64_t width = 0;

  bool given() const { return height > 0; }
};

/// What happens to an image between its file and the model.
struct Preprocessing {
  Color color = Color::Rgb;
  PixelLayout layout = PixelLayout::Nchw;
  int64_t shorter = 0;  ///< the shorter side is resized to this and the other keeps in proportion; 0 leaves them
  Size resize;          ///< or both sides are given
  Size crop;            ///< the middle is kept; not given: all is

  bool resizes() const { return shorter > 0 || resize.given(); }

  int64_t channels() const { return color == Color::Gray ? 1 : 3; }
  Shape sample(int64_t height, int64_t width) const {
    if (layout == PixelLayout::Nchw) return {channels(), height, width};
    return {height, width, channels()};
  }
};

/// Half the margin; a margin of odd size is rounded to the even half, as Python's round() and so torchvision do.
int64_t centre(int64_t size, int64_t crop) {
  const int64_t margin = size - crop;
  return margin / 2 + (margin % 4 == 3 ? 1 : 0);
}

Image load_image(const fs::path& path, const Preprocessing& steps) {
  const std::string where = path.string();
  const auto file = MappedFile::open(path);
  Image image = decode_image(file->bytes(), steps.channels(), where);
  int64_t width = image.width, height = image.height;
  if (steps.resize.given()) {
    width = steps.resize.width;
    height = steps.resize.height;
  } else if (steps.shorter > 0) {
    // The longer side is rounded down, as torchvision does.
    const int64_t shorter = std::min(width, height);
    width = steps.shorter * width / shorter;
    height = steps.shorter * height / shorter;
  }
  Crop crop{0, 0, width, height};
  if (steps.crop.given()) {
    if (width < steps.crop.width || height < steps.crop.height) {
      fail(ErrorCode::InvalidInput, where, "{} × {} pixels{} are too few for a crop of {} × {}", width, height,
           steps.resizes() ? " after resizing" : "", steps.crop.width, steps.crop.height);
    }
    crop = {centre(width, steps.crop.width), centre(height, steps.crop.height), steps.crop.width, steps.crop.height};
  }
  if (width == image.width && height == image.height) return steps.crop.given() ? crop_image(image, crop) : image;
  if (crop.width > kMostPixels / crop.height) {
    fail(ErrorCode::Unsupported, where, "{} × {} pixels after resizing; up to {} are accepted", width, height,
         kMostPixels);
  }
  return resize_image(image, width, height, crop);
}

class ImageFolder : public Dataset {
 public:
  ImageFolder(std::vector<fs::path> files, std::vector<int64_t> classes, const ValueInfo& input, DType type,
              const Preprocessing& steps, PixelValues values)
      : files_(std::move(files)),
        classes_(std::move(classes)),
        input_(input),
        type_(type),
        steps_(steps),
        values_(std::move(values)) {}

  int64_t size() const override { return std::ssize(files_); }
  bool has_labels() const override { return !classes_.empty(); }
  Batch read(int64_t first, int64_t count) const override;

 private:
  void check_size(const fs::path& path, const Image& image, const Image& before) const;
  void write_values(const Image& image, float* out) const;

  std::vector<fs::path> files_;
  std::vector<int64_t> classes_;
  ValueInfo input_;
  DType type_;
  Preprocessing steps_;
  PixelValues values_;
};

Batch ImageFolder::read(int64_t first, int64_t count) const {
  check_range(first, count, size());
  std::vector<Image> images(static_cast<size_t>(count));
  parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      images[static_cast<size_t>(i)] = load_image(files_[static_cast<size_t>(first + i)], steps_);
    }
  });
  Shape shape = steps_.sample(0, 0);
  int64_t each = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    check_size(files_[static_cast<size_t>(first) + i], images[i], images[0]);
    shape = steps_.sample(images[i].height, images[i].width);
    each = element_count(shape);
  }
  shape.insert(shape.begin(), count);
  const auto out = std::make_shared_for_overwrite<float[]>(static_cast<size_t>(count * each));
  parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) write_values(images[static_cast<size_t>(i)], out.get() + i * each);
  });
  Batch batch;
  batch.inputs[input_.name] =
      convert(Tensor(DType::Float32, shape, out, reinterpret_cast<const std::byte*>(out.get())), type_);
  if (has_labels()) batch.labels = class_tensor(classes_, first, count);
  return batch;
}

void ImageFolder::check_size(const fs::path& path, const Image& image, const Image& before) const {
  check_fits(DType::Float32, steps_.sample(image.height, image.width), input_, path.string(),
             "the image, once preprocessed,");
  if (image.width == before.width && image.height == before.height) return;
  fail(ErrorCode::InvalidInput, path.string(),
       "is {} × {} pixels once preprocessed, another image of the batch {} × {}; \"crop\" makes them equal",
       image.width, image.height, before.width, before.height);
}

void ImageFolder::write_values(const Image& image, float* out) const {
  const int64_t channels = image.channels, pixels = image.width * image.height;
  for (int64_t c = 0; c < channels; ++c) {
    const uint8_t* in = image.pixels.data() + (steps_.color == Color::Bgr ? channels - 1 - c : c);
    if (steps_.layout == PixelLayout::Nchw) {
      values_.convert(in, channels, c, out + c * pixels, 1, pixels);
    } else {
      values_.convert(in, channels, c, out + c, channels, pixels);
    }
  }
}

/// The JPEG and PNG files of a folder by the bytes of their names. Other pictures are an error; whatever else lies
/// there is not ours.
std::vector<fs::path> list_images(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  if (error) fail(ErrorCode::Io, folder.string(), "no folder of images that can be read: {}", error.message());
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : entries) {
    if (entry.is_directory(error)) continue;
    std::string kind = entry.path().extension().string();
    std::ranges::transform(kind, kind.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
    if (kind == ".jpg" || kind == ".jpeg" || kind == ".png") {
      files.push_back(entry.path());
    } else if (kind == ".bmp" || kind == ".gif" || kind == ".tif" || kind == ".tiff" || kind == ".webp") {
      fail(ErrorCode::Unsupported, entry.path().string(), "images are read from JPEG and PNG files only");
    }
  }
  if (files.empty()) fail(ErrorCode::InvalidInput, folder.string(), "holds no JPEG or PNG files");
  std::ranges::sort(files, {}, [](const fs::path& path) { return path.filename().string(); });
  return files;
}

/// A line is a name, a tab and a class.
std::map<std::string, int64_t, std::less<>> read_labels(const fs::path& path) {
  const auto file = MappedFile::open(path);
  std::string_view left(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  std::map<std::string, int64_t, std::less<>> classes;
  for (int64_t number = 1; !left.empty(); ++number) {
    std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t tab = line.rfind('\t');
    int64_t value = -1;
    const char* end = line.data() + line.size();
    const bool read = tab != std::string_view::npos && tab > 0 && tab + 1 < line.size() &&
                      std::from_chars(line.data() + tab + 1, end, value).ptr == end;
    if (!read || value < 0) {
      fail(ErrorCode::CorruptFile, path.string(), "line {} is no file name, tab and class from 0 on", number);
    }
    if (!classes.emplace(line.substr(0, tab), value).second) {
      fail(ErrorCode::CorruptFile, path.string(), "line {} names '{}' a second time", number, line.substr(0, tab));
    }
  }
  return classes;
}

}  // namespace

std::unique_ptr<Dataset> open_images(const Description& description, const std::vector<ValueInfo>& inputs,
                                     const DatasetOptions& options) {
  description.check_keys(with_common_keys({"images", "labels", "resize", "crop", "color", "layout"}));
  const std::string& where = description.where();
  Preprocessing steps{.color = enum_value<Color>(description.text("color", "rgb"), where),
                      .layout = enum_value<PixelLayout>(description.text("layout", "nchw"), where)};
  const std::vector<int64_t> resize = description.sides("resize", kMostSide);
  const std::vector<int64_t> crop = description.sides("crop", kMostSide);
  if (resize.size() == 1) steps.shorter = resize[0];
  if (resize.size() == 2) steps.resize = {resize[0], resize[1]};
  if (!crop.empty()) steps.crop = {crop.front(), crop.back()};
  const bool too_large = steps.resize.given()
                             ? steps.crop.height > steps.resize.height || steps.crop.width > steps.resize.width
                             : steps.shorter > 0 && std::min(steps.crop.height, steps.crop.width) > steps.shorter;
  if (too_large) {
    fail(ErrorCode::InvalidConfig, where, "a \"crop\" to {} does not fit a \"resize\" to {}", to_string(crop),
         to_string(resize));
  }
  const ValueInfo& input = description.input(inputs);
  const Size last = steps.crop.given() ? steps.crop : steps.resize.given() ? steps.resize : Size{-1, -1};
  const DType type =
      check_fits(DType::Float32, steps.sample(last.height, last.width), input, where, "an image, once preprocessed,");

  const std::vector<fs::path> all = list_images(description.file("images"));
  const Selection selection = description.select(std::ssize(all), options);
  const std::vector<fs::path> files(all.begin() + selection.first, all.begin() + selection.first + selection.count);
  std::vector<int64_t> classes;
  if (description.has("labels")) {
    const fs::path labels = description.file("labels");
    const auto by_name = read_labels(labels);
    for (const fs::path& file : files) {
      const auto found = by_name.find(file.filename().string());
      if (found == by_name.end()) {
        fail(ErrorCode::InvalidInput, labels.string(), "has no class for the image '{}'", file.filename().string());
      }
      classes.push_back(found->second);
    }
  }
  return std::make_unique<ImageFolder>(files, classes, input, type, steps, PixelValues(description, steps.channels()));
}

}  // namespace kaon
