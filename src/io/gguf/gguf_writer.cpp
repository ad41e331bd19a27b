#include "io/gguf/gguf_writer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <ranges>

#include "base/error.h"

namespace kaon {
namespace {

constexpr int64_t kAlignment = 32;

enum class Kind : uint32_t { U32 = 4, I32 = 5, F32 = 6, Bool = 7, Text = 8, Array = 9, I64 = 11 };

class Bytes {
 public:
  template <typename T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(const std::string& value) {
    number<uint64_t>(value.size());
    text_ += value;
  }
  void kind(Kind value) { number(static_cast<uint32_t>(value)); }
  template <typename T, typename Write>
  void list(Kind element, const std::vector<T>& values, const Write& write) {
    kind(Kind::Array);
    kind(element);
    number<uint64_t>(values.size());
    for (const T& value : values) write(value);
  }

  void value(int64_t v) {
    if (v >= 0 && v <= std::numeric_limits<uint32_t>::max()) {
      kind(Kind::U32);
      return number(static_cast<uint32_t>(v));
    }
    kind(Kind::I64);
    number(v);
  }
  void value(double v) {
    kind(Kind::F32);
    number(static_cast<float>(v));
  }
  void value(bool v) {
    kind(Kind::Bool);
    number(static_cast<uint8_t>(v));
  }
  void value(const std::string& v) {
    kind(Kind::Text);
    text(v);
  }
  void value(const std::vector<int64_t>& v) {
    list(Kind::I32, v, [&](int64_t one) { number(static_cast<int32_t>(one)); });
  }
  void value(const std::vector<double>& v) {
    list(Kind::F32, v, [&](double one) { number(static_cast<float>(one)); });
  }
  void value(const std::vector<std::string>& v) {
    list(Kind::Text, v, [&](const std::string& one) { text(one); });
  }

  const std::string& all() const { return text_; }

 private:
  std::string text_;
};

int64_t aligned(int64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

int64_t GgufPlanned::bytes() const {
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % type->block != 0) {
    fail(ErrorCode::InvalidInput, name, "rows of {} elements are no whole blocks of {}, as {} needs", row, type->block,
         type->name);
  }
  return element_count(shape) / type->block * type->bytes;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::vector<GgufPlanned> tensors)
    : file_(path), tensors_(std::move(tensors)) {
  constexpr uint32_t kVersion = 3;
  Bytes header;
  header.number(kVersion);
  header.number<uint64_t>(tensors_.size());
  header.number<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    header.text(key);
    std::visit([&](const auto& v) { header.value(v); }, value);
  }
  int64_t offset = 0;
  for (const GgufPlanned& tensor : tensors_) {
    header.text(tensor.name);
    header.number(static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t dim : std::views::reverse(tensor.shape)) header.number(dim);
    header.number(tensor.type->id);
    header.number(static_cast<uint64_t>(offset));
    offset += aligned(tensor.bytes());
  }
  file_.write("GGUF");
  file_.write(header.all());
  pad();
}

void GgufWriter::pad() {
  const std::string zeros(static_cast<size_t>(aligned(file_.bytes()) - file_.bytes()), '\0');
  file_.write(zeros);
}

void GgufWriter::write(std::span<const std::byte> data) {
  if (next_ == tensors_.size() || std::ssize(data) != tensors_[next_].bytes()) {
    fail(ErrorCode::Internal, next_ == tensors_.size() ? "" : tensors_[next_].name, "{} bytes have no place",
         data.size());
  }
  ++next_;
  file_.write(data);
  pad();
}

void GgufWriter::finish() {
  if (next_ != tensors_.size()) fail(ErrorCode::Internal, tensors_[next_].name, "was not written");
  file_.finish();
}

}  // namespace kaon
