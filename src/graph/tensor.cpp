#include "graph/tensor.h"

#include <fmt/ranges.h>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "numerics/format.h"
#include "numerics/quantize.h"

namespace kaon {

namespace {

/// The number format whose codes `type` stores, or nullptr.
const Format* format_of(DType type) {
  for (const auto& [name, row] : formats().items()) {
    if (row.onnx_type == static_cast<int32_t>(type)) return &row;
  }
  return nullptr;
}

template <typename To, typename From>
std::vector<To> widen(std::span<const std::byte> bytes, int64_t count) {
  std::vector<To> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    out[i] = static_cast<To>(value);
  }
  return out;
}

}  // namespace

int64_t element_count(std::span<const int64_t> shape) {
  constexpr int64_t kMost = int64_t{1} << 48;
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0) fail(ErrorCode::InvalidInput, to_string(shape), "a shape with a negative dimension");
    if (dim != 0 && count > kMost / dim) fail(ErrorCode::InvalidInput, to_string(shape), "more than 2^48 elements");
    count *= dim;
  }
  return count;
}

std::string to_string(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

int64_t stored_bytes(DType type, int64_t count) { return (count * bits_of(type) + 7) / 8; }

Tensor::Tensor(DType type, Shape shape, std::shared_ptr<const void> owner, const std::byte* data)
    : type_(type), shape_(std::move(shape)), size_(element_count(shape_)), owner_(std::move(owner)), data_(data) {}

Tensor Tensor::of_strings(Shape shape, std::vector<std::string> values) {
  Tensor tensor(DType::String, std::move(shape), nullptr, nullptr);
  if (tensor.size() != std::ssize(values)) {
    fail(ErrorCode::InvalidInput, to_string(tensor.shape()), "{} strings do not fill this shape", values.size());
  }
  tensor.strings_ = std::make_shared<const std::vector<std::string>>(std::move(values));
  return tensor;
}

Tensor Tensor::copy_bytes(DType type, Shape shape, std::span<const std::byte> bytes) {
  check_size(type, shape, bytes.size());
  const auto owner = std::make_shared_for_overwrite<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(owner.get(), bytes.data(), bytes.size());
  return {type, std::move(shape), owner, owner.get()};
}

void Tensor::check_size(DType type, const Shape& shape, size_t bytes) {
  const int64_t wanted = stored_bytes(type, element_count(shape));
  if (static_cast<int64_t>(bytes) != wanted) {
    fail(ErrorCode::InvalidInput, to_string(shape), "{} of this shape takes {} bytes, not {}", name_of(type), wanted,
         bytes);
  }
}

int64_t Tensor::byte_size() const { return stored_bytes(type_, size_); }

const std::vector<std::string>& Tensor::strings() const {
  require_type(*this, DType::String);
  return *strings_;
}

std::vector<int64_t> Tensor::to_int64() const {
  switch (type_) {
    case DType::Int64: return widen<int64_t, int64_t>(bytes(), size_);
    case DType::Int32: return widen<int64_t, int32_t>(bytes(), size_);
    case DType::Int16: return widen<int64_t, int16_t>(bytes(), size_);
    case DType::Int8: return widen<int64_t, int8_t>(bytes(), size_);
    case DType::UInt64: return widen<int64_t, uint64_t>(bytes(), size_);
    case DType::UInt32: return widen<int64_t, uint32_t>(bytes(), size_);
    case DType::UInt16: return widen<int64_t, uint16_t>(bytes(), size_);
    case DType::Bool:
    case DType::UInt8: return widen<int64_t, uint8_t>(bytes(), size_);
    default: break;
  }
  const Format* format = bits_of(type_) < 8 ? format_of(type_) : nullptr;
  if (format == nullptr || format->kind != FormatKind::Integer) {
    fail(ErrorCode::InvalidInput, to_string(shape_), "a {} tensor where integers are needed", name_of(type_));
  }
  const std::vector<float> narrow = to_float();  // a float holds each of them
  return {narrow.begin(), narrow.end()};
}

std::vector<float> Tensor::to_float() const {
  if (type_ == DType::Float32) return widen<float, float>(bytes(), size_);
  if (type_ == DType::Float64) return widen<float, double>(bytes(), size_);
  const Format* format = bits_of(type_) <= 16 && type_ != DType::Bool ? format_of(type_) : nullptr;
  if (format == nullptr) {
    const std::vector<int64_t> integers = to_int64();
    return {integers.begin(), integers.end()};
  }
  std::vector<std::byte> codes(static_cast<size_t>(size_ * format->code_bytes()));
  unpack(bytes(), codes, *format, size_);
  std::vector<float> out(static_cast<size_t>(size_));
  dequantize(codes, out, *format, {Tiling::per_tensor(shape_), {1.0F}, {}});
  return out;
}

Tensor Tensor::reshaped(Shape shape) const {
  if (element_count(shape) != size_) {
    fail(ErrorCode::InvalidInput, to_string(shape), "cannot hold the {} elements of {}", size_, to_string(shape_));
  }
  Tensor out = *this;
  out.shape_ = std::move(shape);
  return out;
}

void require_type(const Tensor& tensor, DType wanted) {
  if (tensor.type() != wanted) {
    fail(ErrorCode::InvalidInput, to_string(tensor.shape()), "a {} tensor where {} is needed", name_of(tensor.type()),
         name_of(wanted));
  }
}

}  // namespace kaon
