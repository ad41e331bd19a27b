#include "data/image.h"

#include <gtest/gtest.h>

#include "data/expect_test.h"
#include "data/make_image_test.h"
#include "io/files_test.h"

namespace kaon {
namespace {

Image decode(const std::string& file, int64_t channels = 3) { return decode_image(bytes_of(file), channels, "it"); }

Image gradient(int64_t width, int64_t height, int64_t channels) {
  Image image{width, height, channels, std::vector<uint8_t>(static_cast<size_t>(width * height * channels))};
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 37 % 256);
  return image;
}

TEST(Image, PngIsExact) {
  for (const int64_t channels : {1, 3}) {
    const Image image = gradient(5, 4, channels);
    const Image again = decode(encode_png(image), channels);
    EXPECT_EQ(again.width, 5);
    EXPECT_EQ(again.height, 4);
    EXPECT_EQ(again.pixels, image.pixels);
  }
}

TEST(Image, GrayAndColorBecomeEachOther) {
  const Image color{2, 1, 3, {255, 0, 0, 10, 200, 30}};
  EXPECT_EQ(decode(encode_png(color), 1).pixels, (std::vector<uint8_t>{76, 124}));  // 0.299 R + 0.587 G + 0.114 B
  const Image gray{2, 1, 1, {7, 250}};
  EXPECT_EQ(decode(encode_png(gray), 3).pixels, (std::vector<uint8_t>{7, 7, 7, 250, 250, 250}));
}

TEST(Image, JpegIsClose) {
  Image flat{17, 9, 3, {}};
  for (int i = 0; i < 17 * 9; ++i) flat.pixels.insert(flat.pixels.end(), {200, 100, 50});
  const Image again = decode(encode_jpeg(flat));
  ASSERT_EQ(again.pixels.size(), flat.pixels.size());
  for (size_t i = 0; i < flat.pixels.size(); ++i) EXPECT_NEAR(again.pixels[i], flat.pixels[i], 2);
}

TEST(Image, TruncatedFiles) {
  for (const std::string& whole : {encode_png(gradient(40, 30, 3)), encode_jpeg(gradient(40, 30, 3))}) {
    // A PNG may lack its last chunk, a JPEG its end mark: the pixels are all there.
    for (size_t size = 0; size + 14 < whole.size(); ++size) {
      EXPECT_THROW(decode(whole.substr(0, size)), Error) << size << " of " << whole.size();
    }
    EXPECT_NO_THROW(decode(whole));
  }
  const std::string jpeg = encode_jpeg(gradient(40, 30, 3));
  expect_error(ErrorCode::CorruptFile, "it: a damaged JPEG: the file is truncated",
               [&] { decode(jpeg.substr(0, jpeg.size() - 30)); });
  const std::string png = encode_png(gradient(40, 30, 3));
  expect_error(ErrorCode::CorruptFile, "it: a damaged PNG: the file is truncated",
               [&] { decode(png.substr(0, png.size() - 30)); });
  expect_error(ErrorCode::Unsupported, "neither a JPEG nor a PNG", [&] { decode("GIF89a"); });
  expect_error(ErrorCode::Unsupported, "neither a JPEG nor a PNG", [&] { decode(""); });
}

TEST(Image, FlippedBytes) {
  for (const std::string& whole : {encode_png(gradient(16, 16, 3)), encode_jpeg(gradient(16, 16, 3))}) {
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ 0x41);
      try {
        decode(flipped);
      } catch (const Error&) {
      }
    }
  }
}

TEST(Image, HeadersThatClaimTooMuch) {
  std::string png = encode_png(gradient(8, 8, 1));
  const auto claim = [&](uint32_t width, uint32_t height) {
    std::string file = png;
    for (size_t i = 0; i < 4; ++i) {
      file[16 + i] = static_cast<char>(width >> (24 - 8 * i));
      file[20 + i] = static_cast<char>(height >> (24 - 8 * i));
    }
    const uint32_t crc = crc_of_chunk(file.substr(12, 17));
    for (size_t i = 0; i < 4; ++i) file[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
    return file;
  };
  expect_error(ErrorCode::Unsupported, "1000000 × 1000000 pixels; up to 268435456 are accepted",
               [&] { decode(claim(1000000, 1000000)); });
  expect_error(ErrorCode::CorruptFile, "claims 16000 × 16000 pixels, more than its",
               [&] { decode(claim(16000, 16000)); });

  std::string jpeg = encode_jpeg(gradient(8, 8, 3));
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\x3A\x98\x3A\x98");
  expect_error(ErrorCode::CorruptFile, "claims 15000 × 15000 pixels, more than its", [&] { decode(jpeg); });
  jpeg.replace(frame + 5, 4, "\xFF\x00\xFF\x00", 4);
  expect_error(ErrorCode::Unsupported, "up to 268435456 are accepted", [&] { decode(jpeg); });
}

TEST(Resize, WeighsByATriangle) {
  const Image row{4, 1, 1, {0, 100, 200, 40}};
  // Halved: each output covers its two pixels and half of one at either side, with weights 1 3 3 1;
  // outside the image there is nothing, and the rest weighs more.
  EXPECT_EQ(resize_image(row, 2, 1, {0, 0, 2, 1}).pixels, (std::vector<uint8_t>{71, 117}));
  // Doubled: 1/4 and 3/4 of the neighbours.
  EXPECT_EQ(resize_image(row, 8, 1, {0, 0, 8, 1}).pixels, (std::vector<uint8_t>{0, 25, 75, 125, 175, 160, 80, 40}));
  const Image column{1, 4, 1, row.pixels};
  EXPECT_EQ(resize_image(column, 1, 2, {0, 0, 1, 2}).pixels, (std::vector<uint8_t>{71, 117}));
}

TEST(Resize, KeepsFlatImagesAndItsOwnSize) {
  const Image image = gradient(23, 17, 3);
  EXPECT_EQ(resize_image(image, 23, 17, {0, 0, 23, 17}).pixels, image.pixels);
  const Image flat{31, 13, 3, std::vector<uint8_t>(31 * 13 * 3, 255)};
  for (const int64_t side : {1, 2, 5, 30, 64}) {
    EXPECT_EQ(resize_image(flat, side, side + 1, {0, 0, side, side + 1}).pixels,
              std::vector<uint8_t>(static_cast<size_t>(side * (side + 1) * 3), 255));
  }
}

TEST(Resize, CropIsAPartOfTheWhole) {
  const Image image = gradient(40, 30, 3);
  for (const auto& [width, height] : {std::pair<int64_t, int64_t>{20, 15}, {57, 43}, {40, 9}}) {
    const Image whole = resize_image(image, width, height, {0, 0, width, height});
    const Crop crop{3, 2, 11, 6};
    EXPECT_EQ(resize_image(image, width, height, crop).pixels, crop_image(whole, crop).pixels);
  }
}

}  // namespace
}  // namespace kaon
