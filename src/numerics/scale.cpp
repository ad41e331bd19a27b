#include "numerics/scale.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "numerics/check.h"
#include "numerics/float_codec.h"

namespace kaon {

namespace {

float clean_bound(float bound) { return std::isnan(bound) ? 0.0f : std::clamp(bound, -FLT_MAX, FLT_MAX); }

/// 2^⌈log2 value⌉, at most 2^127.
float next_power_of_two(float value) {
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0f, std::min(mantissa == 0.5f ? exponent - 1 : exponent, 127));
}

/// The nearest positive number of a Float format.
float round_to(float value, const Format& format) {
  const FloatCodec codec(format);
  const float rounded = codec.decode(codec.encode<Rounding::HalfEven>(value, 0));
  return rounded == 0 ? static_cast<float>(format.smallest()) : rounded;
}

/// choose_scale() for many ranges: what the format says is looked up once.
class ScaleChooser {
 public:
  ScaleChooser(const Format& format, Symmetry symmetry, ScaleType type)
      : type_(type), is_float_(format.kind == FormatKind::Float), asymmetric_(symmetry == Symmetry::Asymmetric) {
    if (format.kind == FormatKind::Block) {
      fail(ErrorCode::InvalidInput, "format", "the blocks of {} find their own scale", format.name);
    }
    if (is_float_) {
      most_ = static_cast<float>(format.max());
      return;
    }
    lowest_ = static_cast<double>(format.integer_min());
    highest_ = static_cast<double>(format.integer_max());
    steps_ = format.integer_max() - format.integer_min();
    const int64_t half = steps_ / 2;
    most_ = static_cast<float>(half);
    if (!asymmetric_ && !format.is_signed) middle_ = int32_t{1} << (format.bits - 1);
  }

  ScaleZero operator()(Range range) const {
    const float first = clean_bound(range.min);
    const float second = clean_bound(range.max);
    const float min = std::min({first, second, 0.0f});
    const float max = std::max({first, second, 0.0f});
    const float amax = std::max(-min, max);
    if (amax == 0) return {1, middle_};
    if (is_float_ || !asymmetric_) return {stored(amax / most_), middle_};
    float scale = (max - min) / static_cast<float>(steps_);
    if (std::isinf(scale)) scale = static_cast<float>((static_cast<double>(max) - min) / static_cast<double>(steps_));
    scale = stored(scale);
    const float zero_point = static_cast<float>(lowest_) - min / scale;
    constexpr double kWhole = 0x1.8p52;  // a double this large has no fraction left, so the addition rounds
    const double whole = (std::clamp<double>(zero_point, lowest_, highest_) + kWhole) - kWhole;
    return {scale, static_cast<int32_t>(whole)};
  }

 private:
  float stored(float scale) const {
    scale = std::max(scale, FLT_MIN);
    return type_ == ScaleType::Float32 ? scale : round_scale(scale, type_);
  }

  ScaleType type_;
  bool is_float_;
  bool asymmetric_;
  float most_ = 0;  ///< what the largest magnitude is divided by
  int64_t steps_ = 0;
  double lowest_ = 0;
  double highest_ = 0;
  int32_t middle_ = 0;  ///< the zero point of symmetric codes
};

}  // namespace

float round_scale(float scale, ScaleType type) {
  check_positive_finite(scale, "scale");
  switch (type) {
    case ScaleType::Float32: return scale;
    case ScaleType::Float16: return round_to(scale, format("float16"));
    case ScaleType::BFloat16: return round_to(scale, format("bfloat16"));
    case ScaleType::PowerOfTwo: return next_power_of_two(scale);
    case ScaleType::E8M0: return std::max(next_power_of_two(scale), 0x1p-127f);
    case ScaleType::E4M3: return round_to(scale, format("fp8_e4m3"));
  }
  fail(ErrorCode::InvalidInput, "type", "no such scale type: {}", static_cast<int>(type));
}

ScaleZero choose_scale(Range range, const Format& format, Symmetry symmetry, ScaleType type) {
  return ScaleChooser(format, symmetry, type)(range);
}

QuantParams choose_params(FloatView in, const Tiling& tiling, const Format& format, Symmetry symmetry, ScaleType type) {
  check_tiling(tiling);
  check_size(in.size, tiling.element_count(), "in");
  QuantParams params{tiling, {}, {}};
  const std::vector<Range> ranges = tile_ranges(in, tiling);
  params.scale.reserve(ranges.size());
  params.zero_point.reserve(ranges.size());
  bool any_zero_point = false;
  const ScaleChooser choose(format, symmetry, type);
  for (const Range& range : ranges) {
    const ScaleZero chosen = choose(range);
    params.scale.push_back(chosen.scale);
    params.zero_point.push_back(chosen.zero_point);
    any_zero_point |= chosen.zero_point != 0;
  }
  if (!any_zero_point) params.zero_point.clear();
  return params;
}

}  // namespace kaon
