#include "engine/value.h"

#include <utility>

#include "base/error.h"
#include "numerics/format.h"
#include "numerics/quantize.h"

namespace kaon {

namespace {

bool stored_alike(DType type) {
  switch (type) {
    case DType::UInt16:
    case DType::UInt32:
    case DType::UInt4:
    case DType::Int4:
    case DType::UInt2:
    case DType::Int2:
    case DType::Float4E2M1: return false;
    default: return true;
  }
}

/// The format whose codes a sub-byte type stores.
const Format& sub_byte_format(DType type) {
  switch (type) {
    case DType::UInt4: return format("uint4");
    case DType::Int4: return format("int4");
    case DType::UInt2: return format("uint2");
    case DType::Int2: return format("int2");
    default: return format("fp4_e2m1");
  }
}

template <typename From, typename To>
at::Tensor convert(const Tensor& tensor, at::ScalarType type) {
  at::Tensor out = at::empty(tensor.shape(), type);
  const std::span<const From> from = tensor.as<From>();
  std::copy(from.begin(), from.end(), out.data_ptr<To>());
  return out;
}

template <typename From, typename To>
Tensor narrow(const at::Tensor& tensor, const Shape& shape) {
  const at::Tensor flat = tensor.contiguous();
  const From* from = flat.data_ptr<From>();
  const std::vector<To> out(from, from + flat.numel());
  return Tensor::of<To>(shape, out);
}

}  // namespace

at::ScalarType carrier(DType type) {
  switch (type) {
    case DType::Float32: return at::kFloat;
    case DType::Float64: return at::kDouble;
    case DType::Float16: return at::kHalf;
    case DType::BFloat16: return at::kBFloat16;
    case DType::Int8:
    case DType::Int4:
    case DType::Int2: return at::kChar;
    case DType::Int16: return at::kShort;
    case DType::UInt16:
    case DType::Int32: return at::kInt;
    case DType::UInt32:
    case DType::UInt64:
    case DType::Int64: return at::kLong;
    case DType::Bool: return at::kBool;
    case DType::Complex64: return at::kComplexFloat;
    case DType::Complex128: return at::kComplexDouble;
    case DType::UInt8:
    case DType::UInt4:
    case DType::UInt2:
    case DType::Float4E2M1:
    case DType::Float8E4M3FN:
    case DType::Float8E4M3FNUZ:
    case DType::Float8E5M2:
    case DType::Float8E5M2FNUZ:
    case DType::Float8E8M0: return at::kByte;
    default: break;
  }
  fail(ErrorCode::Unsupported, std::string(name_of(type)), "the engine computes with numbers and bools only");
}

DType natural_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return DType::Float32;
    case at::kDouble: return DType::Float64;
    case at::kHalf: return DType::Float16;
    case at::kBFloat16: return DType::BFloat16;
    case at::kChar: return DType::Int8;
    case at::kByte: return DType::UInt8;
    case at::kShort: return DType::Int16;
    case at::kInt: return DType::Int32;
    case at::kLong: return DType::Int64;
    case at::kBool: return DType::Bool;
    case at::kComplexFloat: return DType::Complex64;
    case at::kComplexDouble: return DType::Complex128;
    default: fail(ErrorCode::Internal, at::toString(type), "no ONNX type is carried by this ATen type");
  }
}

Value to_value(const Tensor& tensor) {
  const at::ScalarType type = carrier(tensor.type());
  if (tensor.type() == DType::UInt16) return {convert<uint16_t, int32_t>(tensor, type), DType::UInt16};
  if (tensor.type() == DType::UInt32) return {convert<uint32_t, int64_t>(tensor, type), DType::UInt32};
  if (!stored_alike(tensor.type())) {
    at::Tensor codes = at::empty(tensor.shape(), type);
    const std::span<std::byte> bytes(static_cast<std::byte*>(codes.data_ptr()), static_cast<size_t>(tensor.size()));
    unpack(tensor.bytes(), bytes, sub_byte_format(tensor.type()), tensor.size());
    return {codes, tensor.type()};
  }
  if (tensor.size() == 0) return {at::empty(tensor.shape(), type), tensor.type()};
  // The deleter keeps the owner alive; ATen wants a mutable pointer but inputs are never written to.
  void* data = const_cast<std::byte*>(tensor.bytes().data());
  return {at::from_blob(
              data, tensor.shape(), [owner = tensor.owner()](void*) {}, at::TensorOptions(type)),
          tensor.type()};
}

Tensor to_tensor(const Value& value) {
  const Shape shape(value.tensor.sizes().begin(), value.tensor.sizes().end());
  if (value.type == DType::UInt16) return narrow<int32_t, uint16_t>(value.tensor, shape);
  if (value.type == DType::UInt32) return narrow<int64_t, uint32_t>(value.tensor, shape);
  const auto held = std::make_shared<at::Tensor>(value.tensor.detach().contiguous());
  const auto* data = static_cast<const std::byte*>(held->data_ptr());
  if (stored_alike(value.type)) return {value.type, shape, held, data};
  const Format& format = sub_byte_format(value.type);
  std::vector<std::byte> packed(static_cast<size_t>(packed_bytes(format, held->numel())));
  pack({data, static_cast<size_t>(held->numel())}, packed, format, held->numel());
  return Tensor::copy_bytes(value.type, shape, packed);
}

Value make_value(at::Tensor tensor, DType type) {
  const at::ScalarType wanted = carrier(type);
  if (type == DType::UInt16 || type == DType::UInt32) {
    const int64_t mask = type == DType::UInt16 ? 0xFFFF : 0xFFFFFFFF;
    return {tensor.to(at::kLong).bitwise_and(mask).to(wanted), type};
  }
  return {tensor.scalar_type() == wanted ? std::move(tensor) : tensor.to(wanted), type};
}

}  // namespace kaon
