#include "numerics/codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "numerics/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/codes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// Plain loops, which compilers vectorize for each target.
HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
/// saturate(round(y) + zero_point) for codes of up to 16 bits: limited first, so that float32 and int32 are exact and
/// compilers vectorize it.
template <Rounding kRounding>
int32_t integer_code(float y, float u, int32_t zero_point, int32_t low, int32_t high) {
  const float least = static_cast<float>(low - zero_point);
  const float most = static_cast<float>(high - zero_point);
  y = y == y ? y : 0.0f;
  y = y < least ? least : y;
  y = y > most ? most : y;
  if constexpr (kRounding == Rounding::HalfEven) {
    constexpr float kWhole = 0x1.8p23f;  // a float this large has no fraction left, so the addition rounds
    return static_cast<int32_t>((y + kWhole) - kWhole) + zero_point;
  }
  const int32_t whole = static_cast<int32_t>(y);
  const float fraction = y - static_cast<float>(whole);
  int32_t step = 0;
  if constexpr (kRounding == Rounding::HalfAway) step = (fraction >= 0.5f) - (fraction <= -0.5f);
  if constexpr (kRounding == Rounding::Floor) step = -(fraction < 0);
  if constexpr (kRounding == Rounding::Ceil) step = fraction > 0;
  if constexpr (kRounding == Rounding::Stochastic) step = (fraction > u) - (-fraction > u);
  return whole + step + zero_point;
}

/// The same for 32 bits, in double.
template <Rounding kRounding>
int32_t wide_integer_code(float y, float u, int32_t zero_point, int64_t low, int64_t high) {
  double whole = std::isnan(y) ? 0 : std::trunc(static_cast<double>(y));
  const double fraction = std::isfinite(y) ? y - whole : 0;
  if constexpr (kRounding == Rounding::HalfEven) {
    const bool odd = std::fmod(whole, 2) != 0;
    whole += (fraction > 0.5 || (fraction == 0.5 && odd)) - (fraction < -0.5 || (fraction == -0.5 && odd));
  }
  if constexpr (kRounding == Rounding::HalfAway) whole += (fraction >= 0.5) - (fraction <= -0.5);
  if constexpr (kRounding == Rounding::Floor) whole -= fraction < 0;
  if constexpr (kRounding == Rounding::Ceil) whole += fraction > 0;
  if constexpr (kRounding == Rounding::Stochastic) whole += (fraction > u) - (-fraction > u);
  return static_cast<int32_t>(std::clamp(whole + zero_point, static_cast<double>(low), static_cast<double>(high)));
}

/// Fills `codes` with code(i, divided value, zero point) as values of type T.
template <class T, class Code>
void write_codes(const float* HWY_RESTRICT values, const TileParams& params, int64_t count, std::byte* codes,
                 const Code& code) {
  T step[Encoder::kStep];
  const float times = params.times;
  if (params.tile == 1) {
    const float* HWY_RESTRICT scale = params.scale;
    const int32_t* HWY_RESTRICT zero = params.zero_point;
    for (int64_t i = 0; i < count; ++i) {
      step[i] = static_cast<T>(code(i, divided(values[i], times, scale[i]), zero == nullptr ? 0 : zero[i]));
    }
  } else {
    int64_t i = 0;
    for (int64_t tile = 0; i < count; ++tile) {
      const int64_t end = std::min(count, (tile + 1) * params.tile - params.offset);
      const float scale = params.scale[tile];
      const int32_t zero = params.zero_point == nullptr ? 0 : params.zero_point[tile];
      for (; i < end; ++i) step[i] = static_cast<T>(code(i, divided(values[i], times, scale), zero));
    }
  }
  std::memcpy(codes, step, static_cast<size_t>(count) * sizeof(T));
}

void encode_step(const EncodeJob& job, const float* values, const TileParams& params, int64_t index, int64_t count,
                 std::byte* codes) {
  const auto& [format, options, floats] = job;
  float random[Encoder::kStep];
  if (options.rounding == Rounding::Stochastic) {
    for (int64_t i = 0; i < count; ++i) random[i] = random_unit(options.seed, static_cast<uint64_t>(index + i));
  }
  const int64_t low = format.integer_min();
  const int64_t high = format.integer_max();
  with_rounding(options.rounding, [&]<Rounding kRounding>() {
    const auto u = [&](int64_t i) { return kRounding == Rounding::Stochastic ? random[i] : 0.0f; };
    const auto write = [&](const auto& code) {
      switch (format.code_bytes()) {
        case 1: return write_codes<uint8_t>(values, params, count, codes, code);
        case 2: return write_codes<uint16_t>(values, params, count, codes, code);
        default: return write_codes<uint32_t>(values, params, count, codes, code);
      }
    };
    if (format.kind == FormatKind::Float) {
      const FloatCodec codec = *floats;  // a copy of its own can stay in registers
      write([&](int64_t i, float y, int32_t) { return codec.encode<kRounding>(y, u(i)); });
    } else if (format.bits > 16) {
      write([&](int64_t i, float y, int32_t zero) { return wide_integer_code<kRounding>(y, u(i), zero, low, high); });
    } else {
      const auto narrow_low = static_cast<int32_t>(low);
      const auto narrow_high = static_cast<int32_t>(high);
      write([&](int64_t i, float y, int32_t zero) {
        return integer_code<kRounding>(y, u(i), zero, narrow_low, narrow_high);
      });
    }
  });
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {

HWY_EXPORT(encode_step);

namespace {

template <class T>
T read_code(const std::byte* codes, int64_t i) {
  T code;
  std::memcpy(&code, codes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return code;
}

}  // namespace

Encoder::Encoder(const Format& format, const QuantizeOptions& options) : format_(format), options_(options) {
  if (format.kind == FormatKind::Float) codec_.emplace(format, options.saturate);
}

void Encoder::encode(const float* values, const TileParams& params, int64_t index, int64_t count,
                     std::byte* codes) const {
  HWY_DYNAMIC_DISPATCH(encode_step)({format_, options_, codec_}, values, params, index, count, codes);
}

Decoder::Decoder(const Format& format) : format_(format) {
  if (format.kind == FormatKind::Float) codec_.emplace(format);
  if (format.bits > 8) return;
  for (int code = 0; code < 256; ++code) {
    const int low = code & ((1 << format.bits) - 1);
    const bool negative = format.is_signed && low >> (format.bits - 1) != 0;
    table_[code] = format.kind == FormatKind::Float ? codec_->decode(static_cast<uint32_t>(low))
                                                    : static_cast<float>(low - (negative ? 1 << format.bits : 0));
  }
}

void Decoder::decode(const std::byte* codes, const int32_t* zero_point, int64_t count, float* values) const {
  const auto zero = [&](int64_t i) { return zero_point == nullptr ? 0 : zero_point[i]; };
  if (format_.bits <= 8) {
    for (int64_t i = 0; i < count; ++i) {
      values[i] = table_[static_cast<uint8_t>(codes[i])] - static_cast<float>(zero(i));
    }
  } else if (format_.kind == FormatKind::Float) {
    for (int64_t i = 0; i < count; ++i) values[i] = codec_->decode(read_code<uint16_t>(codes, i));
  } else if (format_.bits == 16 && format_.is_signed) {
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(read_code<int16_t>(codes, i) - zero(i));
  } else if (format_.bits == 16) {
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(read_code<uint16_t>(codes, i) - zero(i));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(static_cast<int64_t>(read_code<int32_t>(codes, i)) - zero(i));
    }
  }
}

}  // namespace kaon
#endif
