#pragma once
// clang-format off
#include <cstdio>  // jpeglib.h needs it
#include <jpeglib.h>
// clang-format on
#include <png.h>
#include <zlib.h>

#include <cstdlib>
#include <string>

#include "data/image.h"

namespace kaon {

inline std::string encode_png(const Image& image) {
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  std::string out(image.pixels.size() * 2 + 1000, '\0');
  png_alloc_size_t size = out.size();
  ::png_image_write_to_memory(&header, out.data(), &size, 0, image.pixels.data(), 0, nullptr);
  out.resize(size);
  return out;
}

inline std::string encode_jpeg(const Image& image) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = ::jpeg_std_error(&errors);
  ::jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  ::jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = image.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  ::jpeg_set_defaults(&info);
  ::jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.pixels.data() + info.next_scanline * image.width * image.channels);
    ::jpeg_write_scanlines(&info, &row, 1);
  }
  ::jpeg_finish_compress(&info);
  ::jpeg_destroy_compress(&info);
  std::string out(reinterpret_cast<const char*>(buffer), size);
  std::free(buffer);
  return out;
}

/// The checksum of a PNG chunk's type and data.
inline uint32_t crc_of_chunk(const std::string& chunk) {
  return static_cast<uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size())));
}

}  // namespace kaon
