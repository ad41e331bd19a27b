#include "debug/limits.h"

#include <algorithm>
#include <cmath>

#include "numerics/block_scale.h"

namespace kaon {
namespace {

/// Half the distance between the two largest numbers of a format at scale 1; the whole where rounding may go down that
/// far.
double margin_of(const Format& format, Rounding rounding) {
  const double step =
      format.kind == FormatKind::Integer ? 1 : std::ldexp(1.0, std::ilogb(format.max()) - format.mantissa_bits);
  return rounding == Rounding::HalfEven || rounding == Rounding::HalfAway ? step / 2 : step;
}

Range scaled(const Format& format, double scale, double zero_point, double margin) {
  const double low = format.kind == FormatKind::Integer ? static_cast<double>(format.integer_min()) : format.min();
  const double high = format.kind == FormatKind::Integer ? static_cast<double>(format.integer_max()) : format.max();
  return {static_cast<float>((low - zero_point - margin) * scale),
          static_cast<float>((high - zero_point + margin) * scale)};
}

Tiling block_tiling(const TensorSpec& spec, std::span<const int64_t> shape) {
  return Tiling::per_group(shape, spec.axis, format(spec.format).block);
}

std::vector<Range> block_limits(const TensorSpec& spec, FloatView values, std::span<const int64_t> shape) {
  const Format& f = format(spec.format);
  const Format& element = format(f.element);
  std::vector<Range> tiles = tile_ranges(values, block_tiling(spec, shape));
  const auto absmax = [](const Range& range) {
    return std::min(std::max(std::fabs(range.min), std::fabs(range.max)), std::numeric_limits<float>::max());
  };
  const BlockScaling scaling(f, spec.block_scale);
  float largest = 0;
  for (const Range& tile : tiles) largest = std::max(largest, absmax(tile));
  const float global = f.global_scale ? scaling.global_scale(largest) : 1.0F;
  const double margin = margin_of(element, spec.rounding);
  for (Range& tile : tiles) {
    if (f.widen_on_overflow) {
      tile = {-INFINITY, INFINITY};
    } else {
      tile = scaled(element, scaling.scale(scaling.code(absmax(tile), global)) / global, 0, margin);
    }
  }
  return tiles;
}

Tiling tiling_for(const Quantizer& quantizer, std::span<const int64_t> shape) {
  if (has_own_scales(quantizer.spec)) return block_tiling(quantizer.spec, shape);
  if (is_cast(format(quantizer.spec.format))) return Tiling::per_tensor(shape);
  return quantizer.params.scale.empty() ? tiling_of(quantizer.spec, shape) : params_for(quantizer, shape).tiling;
}

std::vector<Range> limits_of(const Quantizer& quantizer, FloatView values, std::span<const int64_t> shape) {
  if (has_own_scales(quantizer.spec)) return block_limits(quantizer.spec, values, shape);
  const Format& f = format(quantizer.spec.format);
  const QuantParams chosen =
      quantizer.params.scale.empty() ? choose_params(values, shape, quantizer.spec) : QuantParams();
  const QuantParams& params = quantizer.params.scale.empty() ? chosen : quantizer.params;
  const double margin = margin_of(f, quantizer.spec.rounding);
  std::vector<Range> tiles;
  for (size_t i = 0; i < params.scale.size(); ++i) {
    tiles.push_back(scaled(f, params.scale[i], params.zero_point.empty() ? 0 : params.zero_point[i], margin));
  }
  return tiles;
}

/// One tile's part of a row: at most kBlock elements.
void count_block(const float* x, const float* q, int64_t size, const Range& limit, ClipCounts& counts) {
  int32_t beyond = 0, nonzero = 0, zeroed = 0;
  for (int64_t i = 0; i < size; ++i) {
    beyond += static_cast<int32_t>(x[i] < limit.min) | static_cast<int32_t>(x[i] > limit.max);
    const int32_t is_number = static_cast<int32_t>(x[i] < 0) | static_cast<int32_t>(x[i] > 0);
    nonzero += is_number;
    zeroed += is_number & static_cast<int32_t>(q[i] == 0);
  }
  counts.nonzero += nonzero;
  counts.zeroed += zeroed;
  if (beyond == 0) return;
  for (int64_t i = 0; i < size; ++i) {
    if (!(x[i] < limit.min || x[i] > limit.max)) continue;
    if (!std::isfinite(x[i]) || !std::isfinite(q[i])) {
      counts.nonzero -= std::isinf(x[i]) ? 1 : 0;
      continue;
    }
    const double error = static_cast<double>(q[i]) - x[i];
    ++counts.clipped;
    counts.clip_squared_error += error * error;
  }
}

}  // namespace

QuantParams params_for(const Quantizer& quantizer, std::span<const int64_t> shape) {
  QuantParams params = quantizer.params;
  if (quantizer.is_activation()) params.tiling = tiling_of(quantizer.spec, shape);
  return params;
}

Limits::Limits(const Quantizer& quantizer, FloatView values, std::span<const int64_t> shape)
    : plan_(tiling_for(quantizer, shape)), tiles_(limits_of(quantizer, values, shape)) {}

void Limits::count(std::span<const float> x, std::span<const float> q, int64_t begin, int64_t end,
                   ClipCounts& counts) const {
  const int64_t tile = plan_.tile();
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / plan_.row_size();
    const int64_t column = at % plan_.row_size();
    const int64_t in_row = std::min(end - at, plan_.row_size() - column);
    const int64_t size = std::min({in_row, tile - column % tile, kBlock});
    const Range& limit = tiles_[static_cast<size_t>(plan_.first_tile(row) + column / tile)];
    count_block(x.data() + at, q.data() + at, size, limit, counts);
    at += size;
  }
}

std::optional<Range> representable_range(const Quantizer& quantizer) {
  if (quantizer.params.scale.empty()) return std::nullopt;
  const auto same = [](const auto& all) {
    return std::all_of(all.begin(), all.end(), [&](const auto& value) { return value == all.front(); });
  };
  if (!same(quantizer.params.scale) || !same(quantizer.params.zero_point)) return std::nullopt;
  const double zero_point = quantizer.params.zero_point.empty() ? 0 : quantizer.params.zero_point.front();
  return scaled(format(quantizer.spec.format), quantizer.params.scale.front(), zero_point, 0);
}

double code_step(const Quantizer& quantizer) {
  const bool one = quantizer.params.scale.size() == 1 && format(quantizer.spec.format).kind == FormatKind::Integer;
  return one ? quantizer.params.scale.front() : 0;
}

}  // namespace kaon
