#include "engine/affine.h"

#include <algorithm>
#include <cmath>

#include "engine/arith.h"
#include "engine/cast.h"

namespace kaon {

namespace {

struct Range {
  double low;
  double high;
};

Range integer_range(DType type) {
  const double size = std::ldexp(1.0, bits_of(type));
  switch (type) {
    case DType::UInt2:
    case DType::UInt4:
    case DType::UInt8:
    case DType::UInt16: return {0, size - 1};
    case DType::Int2:
    case DType::Int4:
    case DType::Int8:
    case DType::Int16:
    case DType::Int32: return {-size / 2, size / 2 - 1};
    default: break;
  }
  fail(ErrorCode::InvalidInput, "zero point", "codes cannot be {}; integers up to 16 bits, int32, fp8 and fp4 can be",
       name_of(type));
}

}  // namespace

at::Tensor along_axis(const at::Tensor& parameter, at::IntArrayRef shape, int64_t axis) {
  if (parameter.numel() == 1) return parameter.reshape({});
  const int64_t rank = std::ssize(shape);
  const auto at = static_cast<size_t>(wrap_axis(axis, rank));
  if (parameter.dim() != 1 || parameter.size(0) != shape[at]) {
    fail(ErrorCode::InvalidInput, "scale", "its shape is {}, [] or [{}] is needed for axis {} of {}",
         to_string(parameter.sizes()), shape[at], at, to_string(shape));
  }
  std::vector<int64_t> broadcast(shape.size(), 1);
  broadcast[at] = shape[at];
  return parameter.reshape(broadcast);
}

at::Tensor along_blocks(const at::Tensor& parameter, at::IntArrayRef shape, int64_t axis, int64_t block) {
  const int64_t at = wrap_axis(axis, std::ssize(shape));
  std::vector<int64_t> wanted = shape.vec();
  int64_t& length = wanted[static_cast<size_t>(at)];
  const int64_t elements = length;
  // A block that is longer than the axis is as long as the axis.
  const int64_t size = std::clamp<int64_t>(block, 1, std::max<int64_t>(elements, 1));
  length = (elements + size - 1) / size;
  if (parameter.sizes() != at::IntArrayRef(wanted)) {
    fail(ErrorCode::InvalidInput, "scale", "its shape is {}, {} is needed for blocks of {} on axis {} of {}",
         to_string(parameter.sizes()), to_string(wanted), block, at, to_string(shape));
  }
  return parameter.repeat_interleave(size, at).narrow(at, 0, elements);
}

at::Tensor to_float(const Value& value) { return cast(value, DType::Float32).tensor; }

at::Tensor centred(const Value& codes, const at::Tensor& zero) {
  const at::Tensor numbers = cast(codes, DType::Float64).tensor;
  return zero.defined() ? numbers - zero : numbers;
}

at::Tensor zero_point(const Call& call, size_t input) {
  return call.has(input) ? cast(call.value(input), DType::Float64).tensor : at::Tensor();
}

Value to_codes(const at::Tensor& scaled, const at::Tensor& zero, DType type, bool saturate) {
  if (is_float_code(type)) return cast({scaled, natural_type(scaled.scalar_type())}, type, {.saturate = saturate});
  const Range range = integer_range(type);
  // Past float32's integers the sum with the zero point would round again.
  at::Tensor codes = bits_of(type) > 16 ? scaled.to(at::kDouble).round() : scaled.round();
  if (zero.defined()) codes = codes + zero.to(codes.scalar_type());
  // NaN has no code; like ONNX Runtime, the lowest stands for it.
  return make_value(codes.clamp(range.low, range.high).nan_to_num(range.low), type);
}

at::Tensor wrapped_sum(const at::Tensor& sum) { return sum.to(at::kLong).to(at::kInt); }

DynamicCodes quantize_dynamic(const at::Tensor& x) {
  constexpr double kLevels = 255;
  const at::Tensor flat = x.detach().to(at::kFloat).reshape({-1});
  const at::Tensor nothing = at::zeros({}, at::kFloat);
  const at::Tensor low = flat.numel() == 0 ? nothing : flat.min().clamp_max(0);
  const at::Tensor high = flat.numel() == 0 ? nothing : flat.max().clamp_min(0);
  const at::Tensor span = high - low;
  const at::Tensor scale = at::where(span.eq(0), at::ones({}, at::kFloat), span / kLevels);
  const at::Tensor zero = (-low / scale).clamp(0, kLevels).round();
  return {to_codes(x.to(at::kFloat) / scale, zero, DType::UInt8), scale, zero};
}

}  // namespace kaon
