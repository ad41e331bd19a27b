#include "numerics/reference.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "numerics/random.h"

namespace kaon::reference {

namespace {

/// `value` to a whole number. |value| has a fraction only below 2^53, so every step is exact.
double round_whole(double value, const QuantizeOptions& options, int64_t index) {
  switch (options.rounding) {
    case Rounding::HalfEven: return std::nearbyint(value);
    case Rounding::HalfAway: return std::round(value);
    case Rounding::Floor: return std::floor(value);
    case Rounding::Ceil: return std::ceil(value);
    case Rounding::Stochastic: break;
  }
  const double magnitude = std::abs(value);
  const double below = std::floor(magnitude);
  const double u = random_unit(options.seed, static_cast<uint64_t>(index));
  return std::copysign(magnitude - below > u ? below + 1 : below, value);
}

uint32_t saturate_integer(const Format& format, double whole) {
  const double low = static_cast<double>(format.integer_min());
  const double high = static_cast<double>(format.integer_max());
  return static_cast<uint32_t>(static_cast<int64_t>(std::clamp(whole, low, high)));
}

uint32_t sign_bit(const Format& format) { return 1u << (format.bits - 1); }

uint32_t nan_code(const Format& format, bool negative) {
  const uint32_t sign = negative ? sign_bit(format) : 0;
  switch (format.specials) {
    case FloatSpecials::Ieee: {  // all exponent bits and the highest mantissa bit
      const uint32_t exponent = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
      return sign | exponent | 1u << (format.mantissa_bits - 1);
    }
    case FloatSpecials::NanOnly: return sign | (sign_bit(format) - 1);
    case FloatSpecials::NegZeroNan: return sign_bit(format);
    case FloatSpecials::Finite: break;
  }
  return 0;
}

/// The code of a magnitude that the format represents exactly.
uint32_t exact_code(const Format& format, double magnitude) {
  const int lowest = 1 - format.bias;  // exponent of subnormals and of the first normal numbers
  if (magnitude < std::ldexp(1, lowest)) {
    return static_cast<uint32_t>(std::ldexp(magnitude, format.mantissa_bits - lowest));
  }
  const int exponent = std::ilogb(magnitude);
  const double mantissa = std::ldexp(magnitude, format.mantissa_bits - exponent);  // 2^m + the stored bits
  return static_cast<uint32_t>(exponent - lowest) * (1u << format.mantissa_bits) + static_cast<uint32_t>(mantissa);
}

uint32_t overflow_code(const Format& format, bool negative, bool saturate) {
  const uint32_t sign = negative ? sign_bit(format) : 0;
  if (!saturate && format.specials == FloatSpecials::Ieee) return sign | (exact_code(format, format.max()) + 1);
  if (!saturate && format.specials != FloatSpecials::Finite) return nan_code(format, negative);
  return sign | exact_code(format, format.max());
}

uint32_t encode_float(const Format& format, float value, const QuantizeOptions& options, int64_t index) {
  const bool negative = std::signbit(value);
  if (std::isnan(value)) return nan_code(format, negative);
  if (std::isinf(value)) return overflow_code(format, negative, options.saturate);
  // The spacing of the format's numbers around `value`; below the first normal number it no longer shrinks.
  const int exponent = value == 0 ? 1 - format.bias : std::max(std::ilogb(value), 1 - format.bias);
  const double spacing = std::ldexp(1, exponent - format.mantissa_bits);
  const double rounded = std::abs(round_whole(value / spacing, options, index) * spacing);
  if (rounded > format.max()) return overflow_code(format, negative, options.saturate);
  if (rounded == 0 && format.specials == FloatSpecials::NegZeroNan) return 0;
  return (negative ? sign_bit(format) : 0) | exact_code(format, rounded);
}

double decode_float(const Format& format, uint32_t code) {
  const bool negative = (code & sign_bit(format)) != 0;
  const uint32_t magnitude = code & (sign_bit(format) - 1);
  const int field = static_cast<int>(magnitude >> format.mantissa_bits);
  const int mantissa = static_cast<int>(magnitude & ((1u << format.mantissa_bits) - 1));
  const double sign = negative ? -1.0 : 1.0;
  const double nan = std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
  switch (format.specials) {
    case FloatSpecials::Ieee:
      if (field == (1 << format.exponent_bits) - 1) return mantissa != 0 ? nan : sign * INFINITY;
      break;
    case FloatSpecials::NanOnly:
      if (magnitude == sign_bit(format) - 1) return nan;
      break;
    case FloatSpecials::NegZeroNan:
      if (code == sign_bit(format)) return std::numeric_limits<double>::quiet_NaN();
      break;
    case FloatSpecials::Finite: break;
  }
  if (field == 0) return sign * std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits);
  return sign * std::ldexp((1 << format.mantissa_bits) + mantissa, field - format.bias - format.mantissa_bits);
}

/// Largest finite magnitude: NaN and Inf elements have no say in a scale.
float finite_amax(float amax, float x) { return std::isfinite(x) ? std::max(amax, std::abs(x)) : amax; }

std::vector<float> block_amax(FloatView in, const Tiling& blocks) {
  std::vector<float> amax(blocks.tile_count(), 0.0f);
  for (int64_t i = 0; i < in.size; ++i) {
    float& a = amax[tile_of(blocks, i)];
    a = finite_amax(a, in.at(i));
  }
  return amax;
}

/// ⌊log2 amax⌋ - emax and its two variants, bounded to what E8M0 holds.
int e8m0_exponent(float amax, const Format& format, BlockScaleMode mode) {
  if (amax == 0) return -127;
  const Format& element = kaon::format(format.element);
  const int emax = std::ilogb(format.max());
  const int mantissa_bits = element.kind == FormatKind::Integer ? element.bits - 2 : element.mantissa_bits;
  int exponent = std::ilogb(amax);
  switch (mode) {
    case BlockScaleMode::Floor: break;
    case BlockScaleMode::Ceil: exponent += std::ldexp(1.0, exponent) < amax; break;
    case BlockScaleMode::Even: {  // half an element's ulp is added to the bits, and may carry into the exponent
      const uint32_t bits = std::bit_cast<uint32_t>(amax) + (1u << (23 - mantissa_bits - 1));
      exponent = static_cast<int>(bits >> 23) - 127;
      break;
    }
  }
  return std::clamp(exponent - emax, -127, 127);
}

/// What a block's elements are divided by, at scale code `code` (E8M0: together with the element's own exponent).
float element_scale(const Format& format, uint32_t code) {
  if (format.scale == ScaleType::E4M3) return static_cast<float>(decode(kaon::format("fp8_e4m3"), code));
  if (code == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(std::ldexp(1, static_cast<int>(code) - 127 + format.element_exponent));
}

float choose_global_scale(FloatView in, float global_amax) {
  float amax = global_amax;
  if (amax < 0) {
    amax = 0;
    for (int64_t i = 0; i < in.size; ++i) amax = finite_amax(amax, in.at(i));
  }
  return amax == 0 ? 1.0f : std::min(448.0f * 6.0f / amax, FLT_MAX);
}

uint32_t quantize_element(const Format& format, float x, float scale, float global_scale,
                          const QuantizeOptions& options, int64_t index) {
  if (scale == 0) return 0;  // nvfp4: a block far below the tensor's maximum
  QuantizeOptions saturating = options;
  saturating.saturate = true;
  return encode(kaon::format(format.element), x * global_scale / scale, saturating, index);
}

}  // namespace

double decode(const Format& format, uint32_t code) {
  const uint32_t low = format.bits == 32 ? code : code & ((1u << format.bits) - 1);
  if (format.kind == FormatKind::Float) return decode_float(format, low);
  const bool negative = format.is_signed && (low & sign_bit(format)) != 0;
  return static_cast<double>(low) - (negative ? std::ldexp(1, format.bits) : 0);
}

uint32_t encode(const Format& format, float value, const QuantizeOptions& options, int64_t index) {
  if (format.kind == FormatKind::Float) return encode_float(format, value, options, index);
  if (std::isnan(value)) return 0;
  return saturate_integer(format, round_whole(value, options, index));
}

uint32_t quantize_one(const Format& format, float x, float scale, int32_t zero_point, const QuantizeOptions& options,
                      int64_t index) {
  const float y = x / scale;
  if (format.kind == FormatKind::Float) return encode(format, y, options, index);
  const double whole = std::isnan(y) ? 0 : round_whole(y, options, index);
  return saturate_integer(format, whole + zero_point);
}

float dequantize_one(const Format& format, uint32_t code, float scale, int32_t zero_point) {
  return static_cast<float>(decode(format, code) - zero_point) * scale;
}

int64_t tile_of(const Tiling& tiling, int64_t index) {
  int64_t tile = 0;
  int64_t stride = 1;
  for (size_t i = tiling.shape.size(); i-- > 0;) {
    const int64_t extent = tiling.shape[i];
    tile += index % extent / tiling.tile[i] * stride;
    index /= extent;
    stride *= (extent + tiling.tile[i] - 1) / tiling.tile[i];
  }
  return tile;
}

void store_code(std::span<std::byte> codes, const Format& format, int64_t index, uint32_t code) {
  for (int b = 0; b < format.code_bytes(); ++b) {
    codes[index * format.code_bytes() + b] = static_cast<std::byte>(code >> (8 * b));
  }
}

uint32_t load_code(std::span<const std::byte> codes, const Format& format, int64_t index) {
  uint32_t code = 0;
  for (int b = 0; b < format.code_bytes(); ++b) {
    code |= static_cast<uint32_t>(codes[index * format.code_bytes() + b]) << (8 * b);
  }
  return code;
}

void fake_quantize(FloatView in, std::span<float> out, const Format& format, const QuantParams& params,
                   const QuantizeOptions& options) {
  for (int64_t i = 0; i < in.size; ++i) {
    const int64_t tile = tile_of(params.tiling, i);
    const int32_t zero_point = params.zero_point.empty() ? 0 : params.zero_point[tile];
    const uint32_t code = quantize_one(format, in.at(i), params.scale[tile], zero_point, options, i);
    out[i] = dequantize_one(format, code, params.scale[tile], zero_point);
  }
}

void quantize(FloatView in, std::span<std::byte> codes, const Format& format, const QuantParams& params,
              const QuantizeOptions& options) {
  for (int64_t i = 0; i < in.size; ++i) {
    const int64_t tile = tile_of(params.tiling, i);
    const int32_t zero_point = params.zero_point.empty() ? 0 : params.zero_point[tile];
    store_code(codes, format, i, quantize_one(format, in.at(i), params.scale[tile], zero_point, options, i));
  }
}

void dequantize(std::span<const std::byte> codes, std::span<float> out, const Format& format,
                const QuantParams& params) {
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const int64_t tile = tile_of(params.tiling, i);
    const int32_t zero_point = params.zero_point.empty() ? 0 : params.zero_point[tile];
    out[i] = dequantize_one(format, load_code(codes, format, i), params.scale[tile], zero_point);
  }
}

BlockTensor quantize_blocks(FloatView in, const Format& format, std::span<const int64_t> shape, int64_t axis,
                            const QuantizeOptions& options, float global_amax) {
  const Tiling blocks = Tiling::per_group(shape, axis, format.block);
  const Format& element = kaon::format(format.element);
  const std::vector<float> amax = block_amax(in, blocks);

  BlockTensor tensor{{shape.begin(), shape.end()}, axis, {}, {}, 1};
  tensor.codes.resize(in.size * format.code_bytes());
  tensor.scales.resize(amax.size());
  if (format.global_scale) tensor.global_scale = choose_global_scale(in, global_amax);

  for (size_t b = 0; b < amax.size(); ++b) {
    uint32_t code = 0;
    if (format.scale == ScaleType::E4M3) {
      code = encode(kaon::format("fp8_e4m3"), tensor.global_scale * amax[b] / 6.0f);
    } else {
      const BlockScaleMode mode = format.widen_on_overflow ? BlockScaleMode::Floor : options.scale_mode;
      code = static_cast<uint32_t>(e8m0_exponent(amax[b], format, mode) + 127);
    }
    tensor.scales[b] = static_cast<std::byte>(code);
  }
  if (format.widen_on_overflow) {
    std::vector<bool> overflows(amax.size(), false);
    for (int64_t i = 0; i < in.size; ++i) {
      const int64_t block = tile_of(blocks, i);
      const float scale = element_scale(format, static_cast<uint32_t>(tensor.scales[block]));
      if (!std::isfinite(in.at(i))) continue;
      const double q = round_whole(in.at(i) / scale, options, i);
      if (q < element.min() || q > element.max()) overflows[block] = true;
    }
    for (size_t b = 0; b < overflows.size(); ++b) {
      if (overflows[b]) tensor.scales[b] = static_cast<std::byte>(static_cast<uint32_t>(tensor.scales[b]) + 1);
    }
  }

  for (int64_t i = 0; i < in.size; ++i) {
    const float scale = element_scale(format, static_cast<uint32_t>(tensor.scales[tile_of(blocks, i)]));
    store_code(tensor.codes, element, i, quantize_element(format, in.at(i), scale, tensor.global_scale, options, i));
  }
  return tensor;
}

void dequantize_blocks(const BlockTensor& tensor, std::span<float> out, const Format& format) {
  const Tiling blocks = Tiling::per_group(tensor.shape, tensor.axis, format.block);
  const Format& element = kaon::format(format.element);
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const float scale = element_scale(format, static_cast<uint32_t>(tensor.scales[tile_of(blocks, i)]));
    out[i] = dequantize_one(element, load_code(tensor.codes, element, i), scale, 0) / tensor.global_scale;
  }
}

void fake_quantize_blocks(FloatView in, std::span<float> out, const Format& format, std::span<const int64_t> shape,
                          int64_t axis, const QuantizeOptions& options, float global_amax) {
  reference::dequantize_blocks(reference::quantize_blocks(in, format, shape, axis, options, global_amax), out, format);
}

}  // namespace kaon::reference
