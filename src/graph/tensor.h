#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/recycled_memory.h"
#include "graph/dtype.h"

namespace kaon {

using Shape = std::vector<int64_t>;

/// Product of the dimensions. Throws InvalidInput on a negative dimension or past 2^48 elements.
int64_t element_count(std::span<const int64_t> shape);
/// "[2, 3]"
std::string to_string(std::span<const int64_t> shape);

/// An immutable n-dimensional array, C order. Copies share the data, which may lie in a mapped file.
/// Sub-byte types are stored dense, first element in the low bits; strings beside the bytes.
class Tensor {
 public:
  Tensor() = default;
  /// `data` must stay valid as long as `owner` lives and hold byte_size() bytes.
  Tensor(DType type, Shape shape, std::shared_ptr<const void> owner, const std::byte* data);

  static Tensor of_strings(Shape shape, std::vector<std::string> values);
  /// Copies `bytes`; throws InvalidInput when their number does not fit type and shape.
  static Tensor copy_bytes(DType type, Shape shape, std::span<const std::byte> bytes);
  template <typename T>
  static Tensor of(const Shape& shape, std::span<const T> values);
  template <typename T>
  static Tensor of(const Shape& shape, const std::vector<T>& values) {
    return of<T>(shape, std::span<const T>(values));
  }
  /// Takes the values over.
  template <typename T>
  static Tensor of(const Shape& shape, std::vector<T>&& values);
  /// `fill` writes every element. Nothing touches the memory before, so that its threads share the page faults.
  template <typename T, typename Fill>
  static Tensor filled(const Shape& shape, const Fill& fill);
  template <typename T>
  static Tensor scalar(T value) {
    return of<T>({}, std::span<const T>(&value, 1));
  }

  bool defined() const { return type_ != DType::Undefined; }
  DType type() const { return type_; }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return std::ssize(shape_); }
  int64_t size() const { return size_; }  ///< elements
  int64_t byte_size() const;
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(byte_size())}; }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  const std::vector<std::string>& strings() const;

  /// The elements as T; throws InvalidInput when the type differs.
  template <typename T>
  std::span<const T> as() const;
  /// Any integer or bool tensor widened to int64; throws InvalidInput for others.
  std::vector<int64_t> to_int64() const;
  /// Any numeric tensor (4-bit, fp8, half included) converted to float32.
  std::vector<float> to_float() const;
  /// The same data under another shape of as many elements.
  Tensor reshaped(Shape shape) const;

 private:
  /// Throws InvalidInput unless `bytes` is what type and shape take.
  static void check_size(DType type, const Shape& shape, size_t bytes);

  DType type_ = DType::Undefined;
  Shape shape_;
  int64_t size_ = 0;
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  std::shared_ptr<const std::vector<std::string>> strings_;
};

/// Values by name.
using TensorMap = std::map<std::string, Tensor>;

/// Bytes that `count` elements take, sub-byte types dense.
int64_t stored_bytes(DType type, int64_t count);

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::Float32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::Float64;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::Int8;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::UInt8;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return DType::Int16;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return DType::UInt16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::Int32;
}
template <>
constexpr DType dtype_of<uint32_t>() {
  return DType::UInt32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::Int64;
}
template <>
constexpr DType dtype_of<uint64_t>() {
  return DType::UInt64;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::Bool;
}

/// Throws unless `tensor` has the wanted type.
void require_type(const Tensor& tensor, DType wanted);

template <typename T>
Tensor Tensor::of(const Shape& shape, std::span<const T> values) {
  return copy_bytes(dtype_of<T>(), shape, std::as_bytes(values));
}

template <typename T>
Tensor Tensor::of(const Shape& shape, std::vector<T>&& values) {
  check_size(dtype_of<T>(), shape, values.size() * sizeof(T));
  const auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  return {dtype_of<T>(), shape, owner, reinterpret_cast<const std::byte*>(owner->data())};
}

template <typename T, typename Fill>
Tensor Tensor::filled(const Shape& shape, const Fill& fill) {
  const auto count = static_cast<size_t>(element_count(shape));
  const std::shared_ptr<std::byte> owner = recycled_bytes(count * sizeof(T));
  fill(std::span<T>(reinterpret_cast<T*>(owner.get()), count));
  return {dtype_of<T>(), shape, owner, owner.get()};
}

template <typename T>
std::span<const T> Tensor::as() const {
  require_type(*this, dtype_of<T>());
  return {reinterpret_cast<const T*>(data_), static_cast<size_t>(size_)};
}

}  // namespace kaon
