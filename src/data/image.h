#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kaon {

/// 8-bit pixels, rows from the top, channels interleaved.
struct Image {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 0;  ///< 3: red, green, blue; 1: gray
  std::vector<uint8_t> pixels;
};

/// Images of more pixels are refused.
inline constexpr int64_t kMostPixels = int64_t{1} << 28;

/// Decodes a JPEG or PNG file to the bytes that Pillow's Image.open(…) followed by convert("RGB") or, for one channel,
/// convert("L") gives: transparency is dropped, orientation tags and color profiles are not applied. Of 16 bits the
/// high byte is taken, also for gray, where Pillow saturates. Throws CorruptFile or Unsupported at `where`.
Image decode_image(std::span<const std::byte> file, int64_t channels, const std::string& where);

/// The parts of decode_image; they give one channel for gray files and three for the others.
Image decode_jpeg(std::span<const std::byte> file, const std::string& where);
Image decode_png(std::span<const std::byte> file, const std::string& where);

/// Throws Unsupported past kMostPixels, and CorruptFile where a file of this many bytes cannot hold so many pixels: no
/// header makes us allocate more than `pixels_per_byte` times the file.
void check_image_size(int64_t width, int64_t height, size_t file_bytes, int64_t pixels_per_byte,
                      const std::string& where);

/// Shrinks or enlarges to width × height as Pillow's resize with BILINEAR does, bit for bit, and returns the crop of it
/// that starts at (left, top). The crop must lie inside.
struct Crop {
  int64_t left = 0, top = 0, width = 0, height = 0;
};
Image resize_image(const Image& image, int64_t width, int64_t height, const Crop& crop);
Image crop_image(const Image& image, const Crop& crop);

}  // namespace kaon
