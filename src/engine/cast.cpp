#include "engine/cast.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "numerics/format.h"
#include "numerics/quantize.h"

namespace kaon {

namespace {

constexpr uint8_t kE8M0Nan = 255;
constexpr int kE8M0Bias = 127;

/// The format whose codes travel in a uint8 tensor, or nullptr for E8M0, which is only ever a scale.
const Format* float_format(DType type) {
  for (const auto& [name, row] : formats().items()) {
    if (row.onnx_type == static_cast<int>(type)) return &row;
  }
  return nullptr;
}

bool is_sub_byte_integer(DType type) {
  return type == DType::UInt4 || type == DType::Int4 || type == DType::UInt2 || type == DType::Int2;
}

at::Tensor decode(const at::Tensor& codes, DType type) {
  const int64_t count = int64_t{1} << bits_of(type);
  at::Tensor table = at::empty({count}, at::kFloat);
  const std::span<float> numbers(table.data_ptr<float>(), static_cast<size_t>(count));
  if (const Format* format = float_format(type)) {
    std::vector<uint8_t> all(static_cast<size_t>(count));
    std::iota(all.begin(), all.end(), uint8_t{0});
    dequantize(std::as_bytes(std::span(all)), numbers, *format, {Tiling::per_tensor({{count}}), {1.0F}, {}});
  } else {
    for (int i = 0; i < kE8M0Nan; ++i) numbers[static_cast<size_t>(i)] = std::ldexp(1.0F, i - kE8M0Bias);
    numbers[kE8M0Nan] = std::numeric_limits<float>::quiet_NaN();
  }
  return at::take(table, codes.to(at::kLong));
}

uint8_t encode_e8m0(float value, const CastOptions& options) {
  if (std::isnan(value)) return kE8M0Nan;
  const uint8_t past = options.saturate ? kE8M0Nan - 1 : kE8M0Nan;
  if (std::isinf(value)) return value > 0 ? past : 0;
  if (value <= 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  const float up_from = options.e8m0 == E8M0Rounding::Nearest ? 0.75F : std::nextafter(0.5F, 1.0F);
  const bool up = options.e8m0 != E8M0Rounding::Down && fraction >= up_from;
  const int code = exponent - (up ? 0 : 1) + kE8M0Bias;
  return code >= kE8M0Nan ? past : static_cast<uint8_t>(std::max(code, 0));
}

at::Tensor encode(const at::Tensor& tensor, DType type, const CastOptions& options) {
  const at::Tensor numbers = tensor.detach().to(at::kFloat).contiguous();
  at::Tensor codes = at::empty(numbers.sizes(), at::kByte);
  const std::span<const float> in(numbers.data_ptr<float>(), static_cast<size_t>(numbers.numel()));
  const std::span<uint8_t> out(codes.data_ptr<uint8_t>(), in.size());
  if (const Format* format = float_format(type)) {
    quantize(in, std::as_writable_bytes(out), *format, {Tiling::per_tensor({{numbers.numel()}}), {1.0F}, {}},
             {.saturate = options.saturate});
  } else {
    std::transform(in.begin(), in.end(), out.begin(), [&](float value) { return encode_e8m0(value, options); });
  }
  return codes;
}

/// The low bits of an integer, read as a signed or unsigned number of that width.
at::Tensor wrap(const at::Tensor& tensor, DType type) {
  const int64_t size = int64_t{1} << bits_of(type);
  const at::Tensor low = tensor.to(at::kLong).bitwise_and(size - 1);
  const bool is_signed = type == DType::Int4 || type == DType::Int2;
  return is_signed ? low.bitwise_xor(size / 2).sub(size / 2) : low;
}

}  // namespace

bool is_float_code(DType type) {
  switch (type) {
    case DType::Float8E4M3FN:
    case DType::Float8E4M3FNUZ:
    case DType::Float8E5M2:
    case DType::Float8E5M2FNUZ:
    case DType::Float8E8M0:
    case DType::Float4E2M1: return true;
    default: return false;
  }
}

Value cast(const Value& value, DType type, const CastOptions& options) {
  if (value.type == type) return value;
  at::Tensor x = is_float_code(value.type) ? decode(value.tensor, value.type) : value.tensor;
  const bool from_float = at::isFloatingType(x.scalar_type());
  if (is_float_code(type)) return {encode(x, type, options), type};
  if (type == DType::Bool) return {x.ne(0), type};
  if (is_sub_byte_integer(type)) return make_value(wrap(x, type), type);
  // int64 carries uint64, so the upper half of its range is negative there.
  if (value.type == DType::UInt64 && at::isFloatingType(carrier(type))) {
    x = at::where(x.lt(0), x.to(at::kDouble) + 0x1p64, x.to(at::kDouble));
  } else if (type == DType::UInt64 && from_float) {
    const at::Tensor upper = x.ge(0x1p63);
    x = at::where(upper, x.sub(0x1p63).to(at::kLong).bitwise_xor(std::numeric_limits<int64_t>::min()),
                  x.masked_fill(upper, 0).to(at::kLong));
  }
  return make_value(x, type);
}

}  // namespace kaon
