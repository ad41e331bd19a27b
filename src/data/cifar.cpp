// CIFAR-10's binary files: records of one byte for the class and 3072 for the pixels, 32 × 32, red, green and blue
// plane.
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/parallel.h"
#include "data/description.h"

namespace kaon {

namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kPixels = 3 * kPlane, kRecord = 1 + kPixels;

class Cifar : public Dataset {
 public:
  Cifar(std::shared_ptr<const MappedFile> file, std::string input, DType type, PixelValues values, Selection selection)
      : file_(std::move(file)),
        input_(std::move(input)),
        type_(type),
        values_(std::move(values)),
        selection_(selection) {}

  int64_t size() const override { return selection_.count; }
  bool has_labels() const override { return true; }
  Batch read(int64_t first, int64_t count) const override {
    check_range(first, count, size());
    std::vector<float> out(static_cast<size_t>(count * kPixels));
    std::vector<int64_t> classes(static_cast<size_t>(count));
    parallel_for(0, count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto* record =
            reinterpret_cast<const uint8_t*>(file_->bytes().data()) + (selection_.first + first + i) * kRecord;
        classes[static_cast<size_t>(i)] = record[0];
        for (int64_t c = 0; c < 3; ++c) {
          values_.convert(record + 1 + c * kPlane, 1, c, out.data() + i * kPixels + c * kPlane, 1, kPlane);
        }
      }
    });
    Batch batch;
    batch.inputs[input_] = convert(Tensor::of<float>({count, 3, kSide, kSide}, out), type_);
    batch.labels = class_tensor(classes, 0, count);
    return batch;
  }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::string input_;
  DType type_;
  PixelValues values_;
  Selection selection_;
};

}  // namespace

std::unique_ptr<Dataset> open_cifar(const Description& description, const std::vector<ValueInfo>& inputs,
                                    const DatasetOptions& options) {
  description.check_keys(with_common_keys({"cifar"}));
  const std::filesystem::path path = description.file("cifar");
  const ValueInfo& input = description.input(inputs);
  const DType type = check_fits(DType::Float32, {3, kSide, kSide}, input, description.where(), "\"cifar\"");
  const auto file = MappedFile::open(path);
  if (std::ssize(file->bytes()) % kRecord != 0) {
    fail(ErrorCode::CorruptFile, path.string(), "{} bytes are no whole number of CIFAR-10 records of {} bytes",
         file->bytes().size(), kRecord);
  }
  const Selection selection = description.select(std::ssize(file->bytes()) / kRecord, options);
  return std::make_unique<Cifar>(file, input.name, type, PixelValues(description, 3), selection);
}

}  // namespace kaon
