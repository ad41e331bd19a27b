#include "quant/observer_range.h"

#include <cfloat>
#include <cmath>

#include "numerics/float_blocks.h"

namespace kaon {

namespace {

/// Block by block the extremes of the finite values: a second look where the first met Inf, or zeros that may be NaN.
std::vector<float> finite_extremes(FloatView values) {
  std::vector<float> result;
  NonFinite others;
  float scratch[kBlock];
  float finite[kBlock];
  for (int64_t i = 0; i < values.size; i += kBlock) {
    const int64_t count = std::min(kBlock, values.size - i);
    const int64_t kept = keep_finite(load_floats(values, i, count, scratch), count, finite, others);
    if (kept == 0) continue;
    const BlockRange range = block_range(finite, kept);
    result.push_back(range.min);
    result.push_back(range.max);
  }
  return result;
}

}  // namespace

void SeenRange::update(FloatView values) {
  check_view(values, "values");
  if (values.size == 0) return;
  const auto range_of = [](FloatView view) {
    const int64_t shape[] = {view.size};
    return tile_ranges(view, Tiling::per_tensor(shape)).front();
  };
  Range range = range_of(values);
  if (!std::isfinite(range.min) || !std::isfinite(range.max) || (range.min == 0 && range.max == 0)) {
    const std::vector<float> extremes = finite_extremes(values);
    if (extremes.empty()) return;
    range = range_of(extremes);
  }
  range_ = empty_ ? range : Range{std::min(range_.min, range.min), std::max(range_.max, range.max)};
  empty_ = false;
}

Range representable(const TensorSpec& spec, ScaleZero params) {
  const Format& f = format(spec.format);
  double low = f.min();
  double high = f.max();
  if (f.kind == FormatKind::Integer) {
    low = static_cast<double>(f.integer_min() - params.zero_point);
    high = static_cast<double>(f.integer_max() - params.zero_point);
  }
  const auto bounded = [&](double level) {
    return static_cast<float>(std::clamp<double>(level * params.scale, -FLT_MAX, FLT_MAX));
  };
  return {bounded(low), bounded(high)};
}

ScaleZero with_scale(const TensorSpec& spec, float scale, Range range) {
  const Format& f = format(spec.format);
  ScaleZero params = choose_scale(range, f, symmetry_of(spec), spec.scale_type);
  params.scale = scale;
  if (f.kind != FormatKind::Integer || spec.symmetric) return params;
  const double low = static_cast<double>(f.integer_min());
  const double high = static_cast<double>(f.integer_max());
  // The same share of codes below zero as the range has values there.
  const double width = static_cast<double>(range.max) - range.min;
  const double share = width > 0 ? -range.min / width : 0;
  params.zero_point = static_cast<int32_t>(std::clamp(std::nearbyint(low + share * (high - low)), low, high));
  return params;
}

}  // namespace kaon
