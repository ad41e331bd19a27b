// libpng reports errors by longjmp, here into frames without destructors; whatever owns memory lies outside them.
#include "report/png_writer.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"

namespace kaon {

namespace {

/// Colours that agree in their highest bits become one: that of the longest run among them, so flat areas stay exact
/// and only shades of antialiased edges move.
class Palette {
 public:
  explicit Palette(int dropped_bits) : dropped_(dropped_bits), numbers_(size_t{1} << (3 * (8 - dropped_bits)), kNone) {}

  /// The number of a colour, or -1 when there are more than 256.
  int index(uint32_t color, int run) {
    const uint32_t mask = 0xFFU >> dropped_;
    const int bits = 8 - dropped_;
    const uint32_t bucket = ((color >> (16 + dropped_)) & mask) << (2 * bits) |
                            ((color >> (8 + dropped_)) & mask) << bits | ((color >> dropped_) & mask);
    int16_t& number = numbers_[bucket];
    if (number == kNone) {
      if (count_ == 256) return -1;
      number = static_cast<int16_t>(count_++);
    }
    const auto i = static_cast<size_t>(number);
    if (run > longest_[i]) {
      longest_[i] = run;
      colors_[i] = {static_cast<png_byte>(color >> 16), static_cast<png_byte>(color >> 8),
                    static_cast<png_byte>(color)};
    }
    return number;
  }

  const png_color* colors() const { return colors_.data(); }
  int count() const { return count_; }

 private:
  static constexpr int16_t kNone = -1;
  int dropped_;
  std::vector<int16_t> numbers_;
  std::array<png_color, 256> colors_{};
  std::array<int, 256> longest_{};
  int count_ = 0;
};

struct Encoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string file;
  char message[256] = "";
  ~Encoder() { ::png_destroy_write_struct(&png, &info); }
};

[[noreturn]] void leave(png_structp png, png_const_charp message) {
  auto* encoder = static_cast<Encoder*>(::png_get_error_ptr(png));
  std::snprintf(encoder->message, sizeof encoder->message, "%s", message);
  ::png_longjmp(png, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

void append_bytes(png_structp png, png_bytep bytes, size_t count) {
  static_cast<Encoder*>(::png_get_io_ptr(png))->file.append(reinterpret_cast<const char*>(bytes), count);
}

void nothing_to_flush(png_structp) {}

/// False when it failed; encoder.message says why.
bool write_rows(Encoder& encoder, int width, int height, const Palette* palette, png_bytepp rows) {
  if (setjmp(png_jmpbuf(encoder.png)) != 0) return false;
  ::png_set_write_fn(encoder.png, &encoder, append_bytes, nothing_to_flush);
  ::png_set_IHDR(encoder.png, encoder.info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), 8,
                 palette != nullptr ? PNG_COLOR_TYPE_PALETTE : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (palette != nullptr) ::png_set_PLTE(encoder.png, encoder.info, palette->colors(), palette->count());
  ::png_set_compression_level(encoder.png, 4);
  ::png_set_filter(encoder.png, PNG_FILTER_TYPE_BASE, palette != nullptr ? PNG_FILTER_NONE : PNG_FILTER_SUB);
  ::png_write_info(encoder.png, encoder.info);
  ::png_write_image(encoder.png, rows);
  ::png_write_end(encoder.png, nullptr);
  return true;
}

const uint32_t* row_of(const uint8_t* pixels, int stride, int y) {
  return reinterpret_cast<const uint32_t*>(pixels + static_cast<size_t>(y) * static_cast<size_t>(stride));
}

/// One byte a pixel, or empty when 256 colours are not enough.
std::vector<uint8_t> as_palette(const uint8_t* pixels, int width, int height, int stride, Palette& palette) {
  std::vector<uint8_t> bytes(static_cast<size_t>(width) * static_cast<size_t>(height));
  uint8_t* out = bytes.data();
  for (int y = 0; y < height; ++y) {
    const uint32_t* row = row_of(pixels, stride, y);
    for (int x = 0; x < width;) {
      const uint32_t color = row[x] & 0xFFFFFF;
      int end = x + 1;
      while (end < width && (row[end] & 0xFFFFFF) == color) ++end;
      const int number = palette.index(color, end - x);
      if (number < 0) return {};
      std::fill_n(out, end - x, static_cast<uint8_t>(number));
      out += end - x;
      x = end;
    }
  }
  return bytes;
}

std::vector<uint8_t> as_rgb(const uint8_t* pixels, int width, int height, int stride) {
  std::vector<uint8_t> bytes(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  uint8_t* out = bytes.data();
  for (int y = 0; y < height; ++y) {
    const uint32_t* row = row_of(pixels, stride, y);
    for (int x = 0; x < width; ++x) {
      *out++ = static_cast<uint8_t>(row[x] >> 16);
      *out++ = static_cast<uint8_t>(row[x] >> 8);
      *out++ = static_cast<uint8_t>(row[x]);
    }
  }
  return bytes;
}

}  // namespace

std::string encode_png(const uint8_t* pixels, int width, int height, int stride, bool exact, const std::string& where) {
  std::vector<uint8_t> bytes;
  std::unique_ptr<Palette> palette;
  for (const int dropped_bits : {3, 4}) {
    if (exact || !bytes.empty()) break;
    palette = std::make_unique<Palette>(dropped_bits);
    bytes = as_palette(pixels, width, height, stride, *palette);
  }
  if (bytes.empty()) {
    palette.reset();
    bytes = as_rgb(pixels, width, height, stride);
  }
  std::vector<png_bytep> rows(static_cast<size_t>(height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = bytes.data() + y * (bytes.size() / rows.size());

  const auto encoder = std::make_unique<Encoder>();
  encoder->png = ::png_create_write_struct(PNG_LIBPNG_VER_STRING, encoder.get(), leave, ignore_warning);
  if (encoder->png != nullptr) encoder->info = ::png_create_info_struct(encoder->png);
  if (encoder->info == nullptr) fail(ErrorCode::Internal, where, "libpng does not start");
  if (!write_rows(*encoder, width, height, palette.get(), rows.data())) {
    fail(ErrorCode::Internal, where, "cannot make a PNG: {}", encoder->message);
  }
  return std::move(encoder->file);
}

}  // namespace kaon
