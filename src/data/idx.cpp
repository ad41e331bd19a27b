// idx files, as MNIST's: two zero bytes, the element type (8: bytes), the number of dimensions, each dimension as four
// bytes, big end first; then the elements. Often gzipped.
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/parallel.h"
#include "data/description.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostHeader = 4 + 4 * 255;
constexpr size_t kMostElements = size_t{1} << 48;
constexpr size_t kMostShrinking = 1032;  ///< deflate's best

/// The first `most` bytes that a gzip file holds, or all when it holds fewer.
std::vector<std::byte> gunzip(std::span<const std::byte> file, size_t most, const std::string& where) {
  z_stream stream{};
  // 16: with gzip's header.
  if (::inflateInit2(&stream, MAX_WBITS + 16) != Z_OK) fail(ErrorCode::Internal, "zlib", "cannot start to inflate");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, &::inflateEnd);
  constexpr size_t kPiece = std::numeric_limits<uInt>::max();
  std::vector<std::byte> out(most);
  size_t in_done = 0, out_done = 0;
  int state = Z_OK;
  while (state == Z_OK && out_done < most) {
    const auto in_piece = static_cast<uInt>(std::min(file.size() - in_done, kPiece));
    const auto out_piece = static_cast<uInt>(std::min(most - out_done, kPiece));
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(file.data() + in_done));
    stream.avail_in = in_piece;
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + out_done);
    stream.avail_out = out_piece;
    state = ::inflate(&stream, Z_NO_FLUSH);
    in_done += in_piece - stream.avail_in;
    out_done += out_piece - stream.avail_out;
  }
  if (state == Z_BUF_ERROR) fail(ErrorCode::CorruptFile, where, "the gzip file is truncated");
  if (state != Z_OK && state != Z_STREAM_END) fail(ErrorCode::CorruptFile, where, "the gzip file is damaged");
  out.resize(out_done);
  return out;
}

struct Header {
  Shape shape;
  size_t size = 0;      ///< of the header itself
  size_t elements = 1;  ///< and of what follows it
};

Header read_header(std::span<const std::byte> bytes, const std::string& where) {
  const auto byte = [&](size_t i) { return std::to_integer<uint32_t>(bytes[i]); };
  if (bytes.size() < 4 || byte(0) != 0 || byte(1) != 0) fail(ErrorCode::CorruptFile, where, "not an idx file");
  if (byte(2) != 8) {
    fail(ErrorCode::Unsupported, where, "idx elements of type 0x{:02X}; unsigned bytes (0x08) are accepted", byte(2));
  }
  Header header;
  header.size = 4 + 4 * byte(3);
  if (byte(3) == 0 || bytes.size() < header.size) fail(ErrorCode::CorruptFile, where, "its header is truncated");
  for (size_t at = 4; at < header.size; at += 4) {
    const uint32_t dim = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    header.shape.push_back(dim);
    if (dim != 0 && header.elements > kMostElements / dim) {
      fail(ErrorCode::CorruptFile, where, "its header claims {} elements", to_string(header.shape));
    }
    header.elements *= dim;
  }
  return header;
}

/// The bytes of an idx file, mapped or unpacked.
Tensor read_idx(const fs::path& path) {
  const std::string where = path.string();
  const auto file = MappedFile::open(path);
  std::span<const std::byte> bytes = file->bytes();
  std::shared_ptr<const void> owner = file;
  const bool zipped = bytes.size() > 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
  const std::vector<std::byte> start = zipped ? gunzip(bytes, kMostHeader, where) : std::vector<std::byte>();
  const Header header = read_header(zipped ? start : bytes, where);
  const size_t wanted = header.size + header.elements;
  if (zipped) {
    if (wanted / kMostShrinking > bytes.size()) {
      fail(ErrorCode::CorruptFile, where, "claims {} bytes, more than its {} can unpack to", wanted, bytes.size());
    }
    const auto unpacked = std::make_shared<const std::vector<std::byte>>(gunzip(bytes, wanted + 1, where));
    bytes = *unpacked;
    owner = unpacked;
  }
  if (bytes.size() != wanted) {
    fail(ErrorCode::CorruptFile, where, "its header says {}, but {} bytes follow it", to_string(header.shape),
         bytes.size() - header.size);
  }
  return {DType::UInt8, header.shape, owner, bytes.data() + header.size};
}

class Idx : public Dataset {
 public:
  Idx(Tensor pixels, Tensor classes, std::string input, DType type, PixelValues values, int64_t channels,
      Selection selection)
      : pixels_(std::move(pixels)),
        classes_(std::move(classes)),
        input_(std::move(input)),
        type_(type),
        values_(std::move(values)),
        channels_(channels),
        selection_(selection) {}

  int64_t size() const override { return selection_.count; }
  bool has_labels() const override { return classes_.defined(); }
  Batch read(int64_t first, int64_t count) const override {
    check_range(first, count, size());
    const Tensor pixels = slice_samples(pixels_, selection_.first + first, count);
    const int64_t each = pixels_.size() / pixels_.shape()[0], plane = each / channels_;
    std::vector<float> out(static_cast<size_t>(pixels.size()));
    parallel_for(0, count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * channels_; i < end * channels_; ++i) {
        values_.convert(pixels.as<uint8_t>().data() + i * plane, 1, i % channels_, out.data() + i * plane, 1, plane);
      }
    });
    Batch batch;
    batch.inputs[input_] = convert(Tensor::of<float>(pixels.shape(), out), type_);
    if (has_labels()) {
      batch.labels = convert(slice_samples(classes_, selection_.first + first, count), DType::Int64);
    }
    return batch;
  }

 private:
  Tensor pixels_;
  Tensor classes_;
  std::string input_;
  DType type_;
  PixelValues values_;
  int64_t channels_;
  Selection selection_;
};

/// The pixels under the shape that the description gives a sample.
Tensor shaped(const Tensor& pixels, const Description& description, const std::string& where) {
  if (!description.has("shape")) return pixels;
  Shape shape = description.integers("shape", 1, int64_t{1} << 32);
  const Shape given(pixels.shape().begin() + 1, pixels.shape().end());
  if (element_count(shape) != element_count(given)) {
    fail(ErrorCode::InvalidConfig, description.where(), "\"shape\" {} does not hold the {} bytes of a sample in {}",
         to_string(shape), to_string(given), where);
  }
  shape.insert(shape.begin(), pixels.shape()[0]);
  return pixels.reshaped(std::move(shape));
}

}  // namespace

std::unique_ptr<Dataset> open_idx(const Description& description, const std::vector<ValueInfo>& inputs,
                                  const DatasetOptions& options) {
  description.check_keys(with_common_keys({"idx", "labels", "shape"}));
  const fs::path path = description.file("idx");
  const Tensor pixels = shaped(read_idx(path), description, path.string());
  const Shape sample(pixels.shape().begin() + 1, pixels.shape().end());
  const ValueInfo& input = description.input(inputs);
  const DType type = check_fits(DType::Float32, sample, input, path.string(), "the array");
  if (pixels.size() == 0) fail(ErrorCode::InvalidInput, path.string(), "holds no samples");
  Tensor classes;
  if (description.has("labels")) {
    const fs::path labels = description.file("labels");
    classes = read_idx(labels);
    if (classes.shape() != Shape{pixels.shape()[0]}) {
      fail(ErrorCode::InvalidInput, labels.string(), "holds classes {}, but {} holds {} samples",
           to_string(classes.shape()), path.string(), pixels.shape()[0]);
    }
  }
  // Only a shape of three dimensions names its channels: the first.
  const int64_t channels = sample.size() == 3 ? sample[0] : 1;
  const Selection selection = description.select(pixels.shape()[0], options);
  return std::make_unique<Idx>(pixels, classes, input.name, type, PixelValues(description, channels), channels,
                               selection);
}

}  // namespace kaon
