#include "data/description.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "data/expect_test.h"
#include "data/make_image_test.h"
#include "io/files_test.h"

namespace kaon {
namespace {

using namespace std::string_literals;

class Descriptions : public testing::Test {
 protected:
  std::unique_ptr<Dataset> open(const std::string& json, const ValueInfo& input, const DatasetOptions& options = {}) {
    write_file(folder_ / "d.json", json);
    return open_dataset(folder_ / "d.json", {input}, options);
  }
  void refused(ErrorCode code, const std::string& message, const std::string& json, const ValueInfo& input) {
    expect_error(code, message, [&] { open(json, input); });
  }
  /// The `index`-th bytes of a made-up CIFAR file: class, then pixels that tell planes and samples apart.
  void write_cifar(int64_t samples) {
    std::string file;
    for (int64_t i = 0; i < samples; ++i) {
      file += static_cast<char>(i);
      for (int c = 0; c < 3; ++c) file += std::string(1024, static_cast<char>(50 * c + i));
    }
    write_file(folder_ / "c.bin", file);
  }
  void write_images() {
    std::filesystem::create_directories(folder_ / "img");
    // Two by two pixels, of which the first one tells files and channels apart.
    for (const auto& [name, start] : {std::pair{"b.png", 20}, {"a.png", 10}, {"B.PNG", 0}}) {
      Image image{2, 2, 3, {}};
      for (int i = 0; i < 12; ++i) image.pixels.push_back(static_cast<uint8_t>(start + i));
      write_file(folder_ / ("img/"s + name), encode_png(image));
    }
    write_file(folder_ / "img/notes.txt", "no image");
  }

  TemporaryFolder folder_;
  const ValueInfo cifar_ = input_of("x", DType::Float32, {-1, 3, 32, 32});
  const ValueInfo open_image_ = input_of("x", DType::Float32, {-1, 3, -1, -1});
};

TEST_F(Descriptions, Cifar) {
  write_cifar(5);
  const auto dataset = open(R"({"cifar": "c.bin"})", cifar_);
  EXPECT_EQ(dataset->size(), 5);
  const Batch batch = dataset->read(3, 2);
  EXPECT_EQ(values_of<int64_t>(batch.labels), (std::vector<int64_t>{3, 4}));
  const Tensor& x = batch.inputs.at("x");
  ASSERT_EQ(x.shape(), (Shape{2, 3, 32, 32}));
  for (size_t i = 0; i < static_cast<size_t>(x.size()); ++i) {
    ASSERT_EQ(x.as<float>()[i], static_cast<float>((50.0 * (i / 1024 % 3) + 3 + i / 3072) / 255)) << i;
  }
}

TEST_F(Descriptions, ValuesAndSelection) {
  write_cifar(5);
  const std::string json = R"({"cifar": "c.bin", "first": 1, "limit": 3, "scale": 2, "mean": [1, 2, 3],
                               "std": [2, 4, 8], "input": "x"})";
  const auto dataset = open(json, cifar_);
  EXPECT_EQ(dataset->size(), 3);
  const Batch batch = dataset->read(0, 1);
  EXPECT_EQ(batch.labels.as<int64_t>()[0], 1);
  const auto x = batch.inputs.at("x").as<float>();
  EXPECT_EQ(x[0], (1 * 2 - 1) / 2.0F);
  EXPECT_EQ(x[1024], (51 * 2 - 2) / 4.0F);
  EXPECT_EQ(x[2048], (101 * 2 - 3) / 8.0F);
  EXPECT_EQ(open(json, cifar_, {.limit = 2})->size(), 2);
  EXPECT_EQ(open(json, cifar_, {.limit = 4})->size(), 4);  // the option wins
  EXPECT_EQ(open(json, cifar_, {.limit = 9})->size(), 4);
  EXPECT_EQ(open(R"({"cifar": "c.bin", "scale": 1, "mean": 1})", cifar_)->read(0, 1).inputs.at("x").as<float>()[1024],
            49);
}

TEST_F(Descriptions, OtherTypesOfInput) {
  write_cifar(1);
  const ValueInfo half = input_of("x", DType::Float16, {-1, 3, 32, 32});
  const Tensor x = open(R"({"cifar": "c.bin", "scale": 1})", half)->read(0, 1).inputs.at("x");
  EXPECT_EQ(x.type(), DType::Float16);
  EXPECT_EQ(x.to_float()[1024], 50);
  refused(ErrorCode::InvalidInput, "\"cifar\" is float32, but the model's input 'x' is uint8", R"({"cifar": "c.bin"})",
          input_of("x", DType::UInt8, {-1, 3, 32, 32}));
  const ValueInfo any{.name = "x"};
  EXPECT_EQ(open(R"({"cifar": "c.bin"})", any)->read(0, 1).inputs.at("x").type(), DType::Float32);
}

TEST_F(Descriptions, WrongKeysAndValues) {
  write_cifar(5);
  const auto config = [&](const std::string& message, const std::string& json) {
    refused(ErrorCode::InvalidConfig, message, json, cifar_);
  };
  config("d.json: unknown key 'scal'; did you mean 'scale'?", R"({"cifar": "c.bin", "scal": 1})");
  config("unknown key 'zzzzzzzzz'; known are cifar, input", R"({"cifar": "c.bin", "zzzzzzzzz": 1})");
  config("unknown key 'resize'", R"({"cifar": "c.bin", "resize": 1})");
  config("needs one of the keys \"images\", \"cifar\", \"idx\", \"text\" and \"samples\", and has 0",
         R"({"cifra": "c.bin"})");
  config("and has 2", R"({"cifar": "c.bin", "idx": "i"})");
  config("is not JSON", R"({"cifar": )");
  config("is not JSON", R"({"cifar": "c.bin", "scale": 1e999})");
  config("a description is a JSON object", "[1]");
  config("\"cifar\" must be a string", R"({"cifar": 3})");
  config("\"cifar\" must be a string", R"({"cifar": ""})");
  config("\"limit\" must be an integer from 1", R"({"cifar": "c.bin", "limit": 0})");
  config("\"limit\" must be an integer from 1", R"({"cifar": "c.bin", "limit": 18446744073709551615})");
  config("\"first\" must be an integer from 0", R"({"cifar": "c.bin", "first": -1})");
  config("\"first\" must be an integer from 0", R"({"cifar": "c.bin", "first": 1.5})");
  config("\"scale\" must be a number", R"({"cifar": "c.bin", "scale": "1"})");
  config("\"mean\" must be a number, or a list of 3", R"({"cifar": "c.bin", "mean": [1, 2]})");
  config("\"mean\" must be a number, or a list of 3", R"({"cifar": "c.bin", "mean": [1, 2, null]})");
  config("\"std\" must not be 0", R"({"cifar": "c.bin", "std": [1, 0, 1]})");
  refused(ErrorCode::InvalidInput, "\"first\" is 5, but there are only 5 samples", R"({"cifar": "c.bin", "first": 5})",
          cifar_);
  refused(ErrorCode::InvalidInput, "the model has no input 'y'; it takes 'x'", R"({"cifar": "c.bin", "input": "y"})",
          cifar_);
}

TEST_F(Descriptions, WrongCifarFiles) {
  refused(ErrorCode::Io, "c.bin", R"({"cifar": "c.bin"})", cifar_);
  write_file(folder_ / "c.bin", std::string(3073 * 2 - 1, 'a'));
  refused(ErrorCode::CorruptFile, "c.bin: 6145 bytes are no whole number of CIFAR-10 records", R"({"cifar": "c.bin"})",
          cifar_);
  write_file(folder_ / "c.bin", "");
  refused(ErrorCode::InvalidInput, "holds no samples", R"({"cifar": "c.bin"})", cifar_);
  write_cifar(1);
  refused(ErrorCode::InvalidInput, "\"cifar\" is [N, 3, 32, 32] with N samples", R"({"cifar": "c.bin"})",
          input_of("x", DType::Float32, {-1, 32, 32, 3}));
}

std::string idx_of(const Shape& shape, const std::string& elements) {
  std::string file = "\0\0\x08"s + static_cast<char>(shape.size());
  for (const int64_t dim : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(dim >> shift);
  }
  return file + elements;
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  ::deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(text.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

TEST_F(Descriptions, Idx) {
  std::string pixels;
  for (int i = 0; i < 3 * 6; ++i) pixels += static_cast<char>(i * 14);
  const ValueInfo input = input_of("x", DType::Float32, {-1, 1, 2, 3});
  for (const bool zipped : {false, true}) {
    const auto write = [&](const char* name, const std::string& file) {
      write_file(folder_ / name, zipped ? gzip(file) : file);
    };
    write("i", idx_of({3, 2, 3}, pixels));
    write("l", idx_of({3}, "\x05\x06\xFF"));
    const auto dataset = open(R"({"idx": "i", "labels": "l", "shape": [1, 2, 3], "scale": 1, "mean": [4]})", input);
    EXPECT_EQ(dataset->size(), 3);
    const Batch batch = dataset->read(1, 2);
    EXPECT_EQ(values_of<int64_t>(batch.labels), (std::vector<int64_t>{6, 255}));
    ASSERT_EQ(batch.inputs.at("x").shape(), (Shape{2, 1, 2, 3}));
    EXPECT_EQ(batch.inputs.at("x").as<float>()[0], 6 * 14 - 4);
    EXPECT_EQ(batch.inputs.at("x").as<float>()[11], 17 * 14 - 4);
    const auto bare = open(R"({"idx": "i", "first": 2})", input_of("x", DType::Float32, {-1, 2, 3}));
    EXPECT_EQ(bare->size(), 1);
    EXPECT_FALSE(bare->has_labels());
  }
}

TEST_F(Descriptions, WrongIdxFiles) {
  const ValueInfo input = input_of("x", DType::Float32, {-1, 2});
  const auto wrong = [&](ErrorCode code, const std::string& message, const std::string& file) {
    write_file(folder_ / "i", file);
    refused(code, message, R"({"idx": "i"})", input);
  };
  const std::string whole = idx_of({3, 2}, "abcdef");
  wrong(ErrorCode::CorruptFile, "its header says [3, 2], but 5 bytes follow it", whole.substr(0, whole.size() - 1));
  wrong(ErrorCode::CorruptFile, "but 7 bytes follow", whole + "g");
  wrong(ErrorCode::CorruptFile, "but 7 bytes follow", gzip(whole + "g"));
  wrong(ErrorCode::CorruptFile, "its header is truncated", whole.substr(0, 9));
  wrong(ErrorCode::CorruptFile, "its header is truncated", gzip(whole.substr(0, 9)));
  wrong(ErrorCode::CorruptFile, "not an idx file", "abcdefgh");
  wrong(ErrorCode::CorruptFile, "not an idx file", "");
  wrong(ErrorCode::Unsupported, "type 0x0D; unsigned bytes", "\0\0\x0D\x01\0\0\0\x01zzzz"s);
  wrong(ErrorCode::CorruptFile, "claims 4294836237 bytes, more than", gzip(idx_of({65535, 65535}, "")));
  wrong(ErrorCode::CorruptFile, "its header claims [4294967295, 4294967295] elements",
        idx_of({0xFFFFFFFF, 0xFFFFFFFF}, ""));
  wrong(ErrorCode::InvalidInput, "holds no samples", idx_of({0, 2}, ""));
  wrong(ErrorCode::InvalidInput, "the array is [N, 3] with N samples", idx_of({2, 3}, "abcdef"));
  const std::string zipped = gzip(whole);
  wrong(ErrorCode::CorruptFile, "the gzip file is truncated", zipped.substr(0, zipped.size() - 12));
  std::string damaged = zipped;
  damaged[10] = '\xFF';
  wrong(ErrorCode::CorruptFile, "the gzip file is damaged", damaged);

  write_file(folder_ / "i", whole);
  write_file(folder_ / "l", idx_of({2}, "ab"));
  refused(ErrorCode::InvalidInput, "l: holds classes [2], but", R"({"idx": "i", "labels": "l"})", input);
  refused(ErrorCode::InvalidConfig, "\"shape\" [3] does not hold the [2] bytes", R"({"idx": "i", "shape": [3]})",
          input);
  refused(ErrorCode::InvalidConfig, "\"shape\" must be a list of integers", R"({"idx": "i", "shape": [-2]})", input);
  refused(ErrorCode::InvalidConfig, "\"shape\" must be a list of integers", R"({"idx": "i", "shape": 2})", input);
}

TEST_F(Descriptions, ImagesInByteOrder) {
  write_images();
  write_file(folder_ / "l.txt", "b.png\t7\r\n\nother.png\t1\na.png\t8\nB.PNG\t9\n");
  const auto dataset = open(R"({"images": "img", "labels": "l.txt", "scale": 1})", open_image_);
  ASSERT_EQ(dataset->size(), 3);
  const Batch batch = dataset->read(0, 3);
  EXPECT_EQ(values_of<int64_t>(batch.labels), (std::vector<int64_t>{9, 8, 7}));
  ASSERT_EQ(batch.inputs.at("x").shape(), (Shape{3, 3, 2, 2}));
  EXPECT_EQ(values_of<float>(dataset->read(1, 1).inputs.at("x")),
            (std::vector<float>{10, 13, 16, 19, 11, 14, 17, 20, 12, 15, 18, 21}));
  EXPECT_EQ(batch.inputs.at("x").as<float>()[24], 20);
  const auto part = open(R"({"images": "img", "first": 1, "limit": 1, "scale": 1})", open_image_);
  EXPECT_EQ(part->size(), 1);
  EXPECT_FALSE(part->has_labels());
  EXPECT_EQ(part->read(0, 1).inputs.at("x").as<float>()[0], 10);
}

TEST_F(Descriptions, ImageColorsAndLayouts) {
  write_images();
  const auto first = [&](const std::string& words, const Shape& shape) {
    const std::string json = R"({"images": "img", "scale": 1, "first": 1, )" + words + "}";
    const Tensor x = open(json, {.name = "x", .type = DType::Float32})->read(0, 1).inputs.at("x");
    EXPECT_EQ(x.shape(), shape);
    return values_of<float>(x);
  };
  EXPECT_EQ(first(R"("color": "bgr", "mean": [1, 2, 3])", {1, 3, 2, 2}),
            (std::vector<float>{11, 14, 17, 20, 9, 12, 15, 18, 7, 10, 13, 16}));
  EXPECT_EQ(first(R"("layout": "nhwc")", {1, 2, 2, 3}),
            (std::vector<float>{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}));
  EXPECT_EQ(first(R"("color": "gray")", {1, 1, 2, 2}), (std::vector<float>{11, 14, 17, 20}));
  EXPECT_EQ(first(R"("crop": 1)", {1, 3, 1, 1}), (std::vector<float>{10, 11, 12}));
  EXPECT_EQ(first(R"("resize": 1)", {1, 3, 1, 1}), (std::vector<float>{15, 16, 17}));
  EXPECT_EQ(first(R"("crop": [1, 2])", {1, 3, 1, 2}), (std::vector<float>{10, 13, 11, 14, 12, 15}));
  EXPECT_EQ(first(R"("resize": [1, 1])", {1, 3, 1, 1}), (std::vector<float>{15, 16, 17}));
}

TEST_F(Descriptions, WrongImages) {
  const auto wrong = [&](ErrorCode code, const std::string& message, const std::string& json) {
    expect_error(code, message, [&] { open(json, open_image_)->read(0, 2); });
  };
  wrong(ErrorCode::Io, "img: no folder of images that can be read", R"({"images": "img"})");
  std::filesystem::create_directories(folder_ / "img");
  wrong(ErrorCode::InvalidInput, "img: holds no JPEG or PNG files", R"({"images": "img"})");
  write_images();
  wrong(ErrorCode::InvalidConfig, "unknown color 'rbg'; known are rgb, bgr, gray",
        R"({"images": "img", "color": "rbg"})");
  wrong(ErrorCode::InvalidConfig, "unknown layout 'chw'", R"({"images": "img", "layout": "chw"})");
  wrong(ErrorCode::InvalidConfig, "a \"crop\" to [3] does not fit a \"resize\" to [2]",
        R"({"images": "img", "resize": 2, "crop": 3})");
  wrong(ErrorCode::InvalidConfig, "a \"crop\" to [2, 3] does not fit a \"resize\" to [4, 2]",
        R"({"images": "img", "resize": [4, 2], "crop": [2, 3]})");
  wrong(ErrorCode::InvalidConfig, "\"crop\" must be an integer from 1 to 32768, or two: [height, width]",
        R"({"images": "img", "crop": [1, 2, 3]})");
  wrong(ErrorCode::InvalidInput, "B.PNG: 2 × 2 pixels are too few for a crop of 3 × 3",
        R"({"images": "img", "crop": 3})");
  wrong(ErrorCode::InvalidInput, "\"first\" is 3", R"({"images": "img", "first": 3})");
  write_file(folder_ / "l.txt", "a.png\t8\nB.PNG\t9\n");
  wrong(ErrorCode::InvalidInput, "l.txt: has no class for the image 'b.png'",
        R"({"images": "img", "labels": "l.txt"})");
  for (const char* line : {"b.png 7", "b.png\t", "\t7", "b.png\t-1", "b.png\t7x", "b.png\t99999999999999999999"}) {
    write_file(folder_ / "l.txt", "a.png\t8\n"s + line);
    wrong(ErrorCode::CorruptFile, "l.txt: line 2 is no file name, tab and class",
          R"({"images": "img", "labels": "l.txt"})");
  }
  write_file(folder_ / "l.txt", "a.png\t8\na.png\t8\n");
  wrong(ErrorCode::CorruptFile, "line 2 names 'a.png' a second time", R"({"images": "img", "labels": "l.txt"})");
  write_file(folder_ / "img/a.png", encode_png({1, 2, 3, std::vector<uint8_t>(6)}));
  wrong(ErrorCode::InvalidInput, "a.png: is 1 × 2 pixels once preprocessed, another image of the batch 2 × 2",
        R"({"images": "img"})");
  expect_error(ErrorCode::InvalidInput,
               "a.png: the image, once preprocessed, is [N, 3, 2, 1] with N samples along the first axis, but the "
               "model's input 'x' is float32 [N, 3, 2, 2]",
               [&] {
                 open(R"({"images": "img"})", input_of("x", DType::Float32, {-1, 3, 2, 2}))->read(0, 2);
               });
  refused(ErrorCode::InvalidInput, "d.json: an image, once preprocessed, is [N, 3, 2, 2]",
          R"({"images": "img", "crop": 2})", input_of("x", DType::Float32, {-1, 3, 4, 4}));
  refused(ErrorCode::InvalidInput, "is [N, 1, ?, ?]", R"({"images": "img", "color": "gray"})", open_image_);
  const std::string png = encode_png({2, 2, 3, std::vector<uint8_t>(12)});
  write_file(folder_ / "img/a.png", png.substr(0, png.size() - 20));
  wrong(ErrorCode::CorruptFile, "a.png: a damaged PNG: the file is truncated", R"({"images": "img"})");
  write_file(folder_ / "img/c.webp", "");
  wrong(ErrorCode::Unsupported, "c.webp: images are read from JPEG and PNG files only", R"({"images": "img"})");
}

}  // namespace
}  // namespace kaon
