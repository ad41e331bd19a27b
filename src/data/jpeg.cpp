// libjpeg reports errors by calling error_exit, which must not return. It longjmps here, into frames without
// destructors; whatever owns memory lies outside them.

// clang-format off
#include <cstdio>  // jpeglib.h needs it
#include <jpeglib.h>
// clang-format on

#include <csetjmp>
#include <memory>

#include "base/error.h"
#include "data/image.h"

namespace kaon {

namespace {

/// The least a block of 8 × 8 samples takes is one bit, in a progressive file.
constexpr int64_t kPixelsPerByte = 8 * 64;

struct ErrorManager {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

void leave(j_common_ptr info) {
  auto* manager = reinterpret_cast<ErrorManager*>(info->err);
  manager->base.format_message(info, manager->message);
  std::longjmp(manager->jump, 1);
}

void ignore_message(j_common_ptr, int) {}

/// Asked for more than the file has. libjpeg's own would go on with gray pixels.
boolean at_end(j_decompress_ptr info) {
  auto* manager = reinterpret_cast<ErrorManager*>(info->err);
  std::snprintf(manager->message, sizeof manager->message, "the file is truncated");
  std::longjmp(manager->jump, 1);
}

struct Decoder {
  jpeg_decompress_struct info{};
  ErrorManager errors{};
  bool created = false;
  ~Decoder() {
    if (created) ::jpeg_destroy_decompress(&info);
  }
};

/// False when it failed; decoder.errors.message says why.
bool read_header(Decoder& decoder, std::span<const std::byte> file) {
  if (setjmp(decoder.errors.jump) != 0) return false;
  ::jpeg_create_decompress(&decoder.info);
  decoder.created = true;
  ::jpeg_mem_src(&decoder.info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
  decoder.info.src->fill_input_buffer = at_end;
  ::jpeg_read_header(&decoder.info, TRUE);
  return true;
}

bool read_pixels(Decoder& decoder, uint8_t* pixels, size_t row_bytes) {
  if (setjmp(decoder.errors.jump) != 0) return false;
  ::jpeg_start_decompress(&decoder.info);
  while (decoder.info.output_scanline < decoder.info.output_height) {
    JSAMPROW row = pixels + decoder.info.output_scanline * row_bytes;
    ::jpeg_read_scanlines(&decoder.info, &row, 1);
  }
  return true;
}

/// a · b / 255, rounded.
int multiply_255(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

/// Files store ink inverted (Adobe's convention): 255 is no ink.
Image cmyk_to_rgb(const Image& cmyk) {
  Image rgb{cmyk.width, cmyk.height, 3, std::vector<uint8_t>(cmyk.pixels.size() / 4 * 3)};
  for (size_t i = 0; i < cmyk.pixels.size() / 4; ++i) {
    const uint8_t* ink = cmyk.pixels.data() + 4 * i;
    const int paper = ink[3];
    for (size_t c = 0; c < 3; ++c) {
      rgb.pixels[3 * i + c] = static_cast<uint8_t>(paper - multiply_255(255 - ink[c], paper));
    }
  }
  return rgb;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> file, const std::string& where) {
  const auto decoder = std::make_unique<Decoder>();
  jpeg_decompress_struct& info = decoder->info;
  info.err = ::jpeg_std_error(&decoder->errors.base);
  decoder->errors.base.error_exit = leave;
  decoder->errors.base.emit_message = ignore_message;
  if (!read_header(*decoder, file)) {
    fail(ErrorCode::CorruptFile, where, "not a readable JPEG: {}", decoder->errors.message);
  }
  check_image_size(info.image_width, info.image_height, file.size(), kPixelsPerByte, where);
  switch (info.num_components) {
    case 1: info.out_color_space = JCS_GRAYSCALE; break;
    case 3: info.out_color_space = JCS_RGB; break;
    case 4: info.out_color_space = JCS_CMYK; break;
    default:
      fail(ErrorCode::Unsupported, where, "a JPEG of {} components; 1, 3 and 4 are accepted", info.num_components);
  }
  Image image{info.image_width, info.image_height, info.num_components, {}};
  const auto row_bytes = static_cast<size_t>(image.width * image.channels);
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  if (!read_pixels(*decoder, image.pixels.data(), row_bytes)) {
    fail(ErrorCode::CorruptFile, where, "a damaged JPEG: {}", decoder->errors.message);
  }
  return image.channels == 4 ? cmyk_to_rgb(image) : image;
}

}  // namespace kaon
