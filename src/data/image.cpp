#include "data/image.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace kaon {

namespace {

bool starts_with(std::span<const std::byte> file, std::span<const uint8_t> magic) {
  return file.size() >= magic.size() &&
         std::equal(magic.begin(), magic.end(), file.begin(), [](uint8_t a, std::byte b) { return std::byte{a} == b; });
}

Image to_gray(const Image& image) {
  Image gray{image.width, image.height, 1, std::vector<uint8_t>(image.pixels.size() / 3)};
  for (size_t i = 0; i < gray.pixels.size(); ++i) {
    const uint8_t* rgb = image.pixels.data() + 3 * i;
    // ITU-R 601 luma in 16-bit fixed point, as Pillow rounds it.
    gray.pixels[i] = static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
  }
  return gray;
}

Image to_rgb(const Image& image) {
  Image rgb{image.width, image.height, 3, std::vector<uint8_t>(image.pixels.size() * 3)};
  for (size_t i = 0; i < image.pixels.size(); ++i) std::fill_n(rgb.pixels.begin() + 3 * i, 3, image.pixels[i]);
  return rgb;
}

}  // namespace

void check_image_size(int64_t width, int64_t height, size_t file_bytes, int64_t pixels_per_byte,
                      const std::string& where) {
  if (width < 1 || height < 1) fail(ErrorCode::CorruptFile, where, "an image of {} × {} pixels", width, height);
  if (width > kMostPixels / height) {
    fail(ErrorCode::Unsupported, where, "{} × {} pixels; up to {} are accepted", width, height, kMostPixels);
  }
  if (width * height / pixels_per_byte > static_cast<int64_t>(file_bytes)) {
    fail(ErrorCode::CorruptFile, where, "claims {} × {} pixels, more than its {} bytes can hold", width, height,
         file_bytes);
  }
}

Image decode_image(std::span<const std::byte> file, int64_t channels, const std::string& where) {
  constexpr std::array<uint8_t, 3> kJpeg{0xFF, 0xD8, 0xFF};
  constexpr std::array<uint8_t, 8> kPng{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  Image image;
  if (starts_with(file, kJpeg)) {
    image = decode_jpeg(file, where);
  } else if (starts_with(file, kPng)) {
    image = decode_png(file, where);
  } else {
    fail(ErrorCode::Unsupported, where, "neither a JPEG nor a PNG file");
  }
  if (image.channels == channels) return image;
  return channels == 1 ? to_gray(image) : to_rgb(image);
}

Image crop_image(const Image& image, const Crop& crop) {
  const int64_t row = crop.width * image.channels;
  Image out{crop.width, crop.height, image.channels, std::vector<uint8_t>(static_cast<size_t>(row * crop.height))};
  for (int64_t y = 0; y < crop.height; ++y) {
    const auto from = image.pixels.begin() + ((crop.top + y) * image.width + crop.left) * image.channels;
    std::copy_n(from, row, out.pixels.begin() + y * row);
  }
  return out;
}

}  // namespace kaon
