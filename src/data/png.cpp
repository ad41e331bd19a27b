// libpng reports errors by longjmp, here into frames without destructors; whatever owns memory lies outside them.
#include <png.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "data/image.h"

namespace kaon {

namespace {

/// Deflate shrinks at most 1032 times, and a pixel may be one bit.
constexpr int64_t kPixelsPerByte = 8 * 1032;

struct Decoder {
  std::span<const std::byte> left;
  png_structp png = nullptr;
  png_infop info = nullptr;
  char message[256] = "";
  ~Decoder() { ::png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void leave(png_structp png, png_const_charp message) {
  auto* decoder = static_cast<Decoder*>(::png_get_error_ptr(png));
  std::snprintf(decoder->message, sizeof decoder->message, "%s", message);
  ::png_longjmp(png, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* decoder = static_cast<Decoder*>(::png_get_io_ptr(png));
  if (count > decoder->left.size()) leave(png, "the file is truncated");
  std::memcpy(out, decoder->left.data(), count);
  decoder->left = decoder->left.subspan(count);
}

/// False when it failed; decoder.message says why.
bool read_header(Decoder& decoder) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  ::png_set_read_fn(decoder.png, &decoder, read_bytes);
  // Profiles and text are not used, and may be large.
  ::png_set_keep_unknown_chunks(decoder.png, PNG_HANDLE_CHUNK_NEVER, nullptr, 0);
  ::png_set_user_limits(decoder.png, 0x7FFFFFFF, 0x7FFFFFFF);
  ::png_set_crc_action(decoder.png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
  ::png_read_info(decoder.png, decoder.info);
  return true;
}

/// Asks for 8-bit gray or RGB, and returns the bytes of a row; 0 when it failed.
size_t choose_layout(Decoder& decoder) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return 0;
  const int color = ::png_get_color_type(decoder.png, decoder.info);
  if (color == PNG_COLOR_TYPE_PALETTE) ::png_set_palette_to_rgb(decoder.png);
  if (color == PNG_COLOR_TYPE_GRAY) ::png_set_expand_gray_1_2_4_to_8(decoder.png);
  ::png_set_strip_16(decoder.png);  // the high byte
  ::png_set_strip_alpha(decoder.png);
  ::png_set_interlace_handling(decoder.png);
  ::png_read_update_info(decoder.png, decoder.info);
  return ::png_get_rowbytes(decoder.png, decoder.info);
}

bool read_pixels(Decoder& decoder, png_bytepp rows) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  ::png_read_image(decoder.png, rows);
  return true;
}

}  // namespace

Image decode_png(std::span<const std::byte> file, const std::string& where) {
  const auto decoder = std::make_unique<Decoder>();
  decoder->left = file;
  decoder->png = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, decoder.get(), leave, ignore_warning);
  if (decoder->png != nullptr) decoder->info = ::png_create_info_struct(decoder->png);
  if (decoder->info == nullptr) fail(ErrorCode::Internal, where, "libpng does not start");
  if (!read_header(*decoder)) fail(ErrorCode::CorruptFile, where, "not a readable PNG: {}", decoder->message);

  Image image{::png_get_image_width(decoder->png, decoder->info), ::png_get_image_height(decoder->png, decoder->info)};
  check_image_size(image.width, image.height, file.size(), kPixelsPerByte, where);
  const size_t row_bytes = choose_layout(*decoder);
  if (row_bytes == 0) fail(ErrorCode::CorruptFile, where, "a damaged PNG: {}", decoder->message);
  image.channels = ::png_get_channels(decoder->png, decoder->info);
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  std::vector<png_bytep> rows(static_cast<size_t>(image.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = image.pixels.data() + y * row_bytes;
  if (!read_pixels(*decoder, rows.data())) {
    fail(ErrorCode::CorruptFile, where, "a damaged PNG: {}", decoder->message);
  }
  return image;
}

}  // namespace kaon
