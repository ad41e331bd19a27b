#include "quant/observer_error.h"

#include <algorithm>
#include <cmath>

#include "numerics/float_codec.h"
#include "quant/observer_range.h"

namespace kaon {

namespace {

// Between two midpoints the error at x is (x - level)², so its integral from 0 is C(level) + (x - level)³ / 3, where C
// grows by 2 h³ / 3 from one level to the next, h being half their distance. Past the outermost level it goes on as the
// cube does; what lies more than `reach` beyond that level counts as clipped.

struct Nearest {
  double level;
  double integral;  ///< C(level)
  double reach;     ///< half the distance to its neighbours further out
};

double integral_at(double x, const Nearest& nearest, double clip_penalty) {
  const double r = x - nearest.level;
  const double inner = std::clamp(r, -nearest.reach, nearest.reach);
  const double rounded = inner * inner * inner;
  return nearest.integral + (rounded + clip_penalty * (r * r * r - rounded)) / 3;
}

double error_at(double x, const Nearest& nearest, double clip_penalty) {
  const double r = x - nearest.level;
  const double error = r * r;
  return std::fabs(r) > nearest.reach ? clip_penalty * error : error;
}

struct IntegerLevels {
  double low;
  double high;

  Nearest operator()(double x) const {
    // Adding 1.5 · 2^52 leaves no bits for a fraction: the sum is rounded to a whole number.
    constexpr double kShift = 0x1.8p52;
    const double level = (std::clamp(x, low, high) + kShift) - kShift;
    return {level, level / 12, 0.5};
  }
};

struct FloatLevels {
  FloatCodec codec;
  const std::vector<double>& levels;
  const std::vector<double>& integral;

  Nearest operator()(double x) const {
    const auto magnitude = static_cast<float>(std::min(std::fabs(x), levels.back()));
    const auto code = static_cast<size_t>(codec.encode<Rounding::HalfEven>(magnitude, 0));
    const size_t below = code == 0 ? 0 : code - 1;
    const double reach = code + 1 == levels.size() ? (levels[code] - levels[below]) / 2 : levels.back();
    return x < 0 ? Nearest{-levels[code], -integral[code], reach} : Nearest{levels[code], integral[code], reach};
  }
};

/// The factor f, at most 1, for which error(f) is least: a coarse walk down, then closer looks around the best.
template <class Error>
double least_error_factor(const Error& error) {
  constexpr double kStep = 1.0 / 16;  // of an octave
  constexpr int kSteps = 16 * 12;
  double best = 0;
  double least = error(1.0);
  for (int k = 1; k <= kSteps; ++k) {
    const double at = -k * kStep;
    const double e = error(std::exp2(at));
    if (e < least) {
      least = e;
      best = at;
    } else if (e > kHopeless * least) {
      break;
    }
  }
  for (double step = kStep / 2; step > kStep / 10; step /= 2) {
    const double around = best;
    for (const double at : {around + step, around - step}) {
      if (at > 0) continue;
      const double e = error(std::exp2(at));
      if (e < least) {
        least = e;
        best = at;
      }
    }
  }
  return std::exp2(best);
}

float times(float bound, double factor) { return static_cast<float>(bound * factor); }

}  // namespace

ErrorModel::ErrorModel(const Histogram& histogram, const TensorSpec& spec, double clip_penalty)
    : spec_(spec), format_(format(spec.format)), clip_penalty_(clip_penalty) {
  const std::span<const int64_t> counts = histogram.counts();
  double density = 0;
  const auto change = [&](double x, double to) {
    if (to != density) edges_.push_back({x, density - to});
    density = to;
  };
  for (int64_t i = 0; i < std::ssize(counts); ++i) {
    const auto count = static_cast<double>(counts[static_cast<size_t>(i)]);
    // The outer bins reach only as far as the data do.
    const double low = std::max<double>(histogram.edge(i), histogram.min());
    const double high = std::min<double>(histogram.edge(i + 1), histogram.max());
    if (high > low) {
      change(low, count / (high - low));
    } else if (count > 0) {
      points_.push_back({low, count});
    }
  }
  change(histogram.max(), 0);
  if (format_.kind != FormatKind::Float) return;
  const FloatCodec codec(format_);
  const uint32_t last = codec.encode<Rounding::HalfEven>(static_cast<float>(format_.max()), 0);
  for (uint32_t code = 0; code <= last; ++code) {
    levels_.push_back(codec.decode(code));
    const double half = code == 0 ? 0 : (levels_[code] - levels_[code - 1]) / 2;
    integral_.push_back((code == 0 ? 0 : integral_[code - 1]) + 2 * half * half * half / 3);
  }
}

template <class Levels>
double ErrorModel::sum(const Levels& levels, double scale) const {
  const double inverse = 1 / scale;
  double bins = 0;
  for (const Weighted& edge : edges_) {
    const double x = edge.x * inverse;
    bins += edge.weight * integral_at(x, levels(x), clip_penalty_);
  }
  double points = 0;
  for (const Weighted& point : points_) {
    const double x = point.x * inverse;
    points += point.weight * error_at(x, levels(x), clip_penalty_);
  }
  return (bins * scale + points) * scale * scale;
}

template <class Body>
auto ErrorModel::with_levels(int32_t zero_point, const Body& body) const {
  if (format_.kind == FormatKind::Float) return body(FloatLevels{FloatCodec(format_), levels_, integral_});
  return body(IntegerLevels{static_cast<double>(format_.integer_min() - zero_point),
                            static_cast<double>(format_.integer_max() - zero_point)});
}

double ErrorModel::operator()(ScaleZero params) const {
  return with_levels(params.zero_point, [&](const auto& levels) { return sum(levels, params.scale); });
}

std::vector<double> ErrorModel::quantized(std::span<const double> values, ScaleZero params) const {
  std::vector<double> result(values.size());
  with_levels(params.zero_point, [&](const auto& levels) {
    std::ranges::transform(values, result.begin(), [&](double x) { return levels(x / params.scale).level; });
  });
  return result;
}

double ErrorModel::operator()(Range range) const {
  return (*this)(choose_scale(range, format_, symmetry_of(spec_), spec_.scale_type));
}

Range least_error_range(const ErrorModel& error, Range all) {
  const double together = least_error_factor([&](double f) {
    return error(Range{times(all.min, f), times(all.max, f)});
  });
  Range best{times(all.min, together), times(all.max, together)};
  const bool one_number = error.spec().symmetric || format(error.spec().format).kind == FormatKind::Float;
  if (one_number || all.min == 0 || all.max == 0) return best;
  constexpr int kRounds = 2;
  for (int round = 0; round < kRounds; ++round) {
    const double low = least_error_factor([&](double f) { return error(Range{times(all.min, f), best.max}); });
    best.min = times(all.min, low);
    const double high = least_error_factor([&](double f) { return error(Range{best.min, times(all.max, f)}); });
    best.max = times(all.max, high);
  }
  return best;
}

ScaleZero least_error_power_of_two(const ErrorModel& error, Range all) {
  constexpr int kHalvings = 12;
  constexpr int kPlaces = 8;
  TensorSpec spec = error.spec();
  spec.scale_type = ScaleType::PowerOfTwo;
  const Format& f = format(spec.format);
  const ScaleZero widest = choose_scale(all, f, symmetry_of(spec), ScaleType::PowerOfTwo);
  const bool free_zero = f.kind == FormatKind::Integer && !spec.symmetric && all.min < 0 && all.max > 0;
  ScaleZero best = widest;
  double least = error(widest);
  for (int k = 0; k <= kHalvings; ++k) {
    const float scale = std::ldexp(widest.scale, -k);
    if (scale < std::numeric_limits<float>::min()) break;
    // Zero points from where the range is cut only above to where it is cut only below.
    const double low = static_cast<double>(f.integer_min()) - all.min / scale;
    const double high = static_cast<double>(f.integer_max()) - all.max / scale;
    double nearest = std::numeric_limits<double>::infinity();
    for (int place = 0; place <= (free_zero ? kPlaces : 0); ++place) {
      ScaleZero params = with_scale(spec, scale, all);
      if (free_zero) {
        const double zero = std::nearbyint(low + (high - low) * place / kPlaces);
        params.zero_point = static_cast<int32_t>(
            std::clamp(zero, static_cast<double>(f.integer_min()), static_cast<double>(f.integer_max())));
      }
      const double e = error(params);
      nearest = std::min(nearest, e);
      if (e < least) {
        least = e;
        best = params;
      }
    }
    if (nearest > kHopeless * least) break;
  }
  return best;
}

}  // namespace kaon
