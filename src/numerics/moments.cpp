#include "numerics/moments.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "hwy/cache_control.h"
#include "numerics/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/moments.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#ifndef KAON_NUMERICS_MOMENTS_ONCE
#define KAON_NUMERICS_MOMENTS_ONCE
namespace kaon {
namespace {

/// Σ (x - shift)^k; a shift near the mean keeps the sums free of cancellation.
struct PowerSums {
  double s1 = 0, s2 = 0, s3 = 0, s4 = 0;
};

/// Columns of a tile that one call of the column kernel takes.
constexpr int64_t kStrip = 64;

struct ColumnSums {
  alignas(64) float min[kStrip], max[kStrip], sum[kStrip];
  alignas(64) double shift[kStrip], s1[kStrip], s2[kStrip], s3[kStrip], s4[kStrip];
};

double shift_for(float min, float max, float sum, int64_t count) {
  if (min == max) return min;  // a constant gets a variance of exactly 0
  return std::isfinite(sum) ? static_cast<double>(sum) / static_cast<double>(count) : 0.5 * min + 0.5 * max;
}

}  // namespace
}  // namespace kaon
#endif

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class V>
HWY_INLINE void add_powers(V value, V shift, V& s1, V& s2, V& s3, V& s4) {
  const auto x = hn::Sub(value, shift);
  const auto xx = hn::Mul(x, x);
  s1 = hn::Add(s1, x);
  s2 = hn::Add(s2, xx);
  s3 = hn::MulAdd(xx, x, s3);
  s4 = hn::MulAdd(xx, xx, s4);
}

PowerSums power_sums(const float* HWY_RESTRICT values, int64_t count, double shift) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto c = hn::Set(d, shift);
  auto a1 = hn::Zero(d), a2 = a1, a3 = a1, a4 = a1;
  auto b1 = a1, b2 = a1, b3 = a1, b4 = a1;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    hwy::Prefetch(values + i + kBlock);  // the next block arrives while this one is worked on
    add_powers(hn::PromoteTo(d, hn::LoadU(df, values + i)), c, a1, a2, a3, a4);
    add_powers(hn::PromoteTo(d, hn::LoadU(df, values + i + lanes)), c, b1, b2, b3, b4);
  }
  PowerSums sums;
  sums.s1 = hn::GetLane(hn::SumOfLanes(d, hn::Add(a1, b1)));
  sums.s2 = hn::GetLane(hn::SumOfLanes(d, hn::Add(a2, b2)));
  sums.s3 = hn::GetLane(hn::SumOfLanes(d, hn::Add(a3, b3)));
  sums.s4 = hn::GetLane(hn::SumOfLanes(d, hn::Add(a4, b4)));
  for (; i < count; ++i) {
    const double x = values[i] - shift;
    const double xx = x * x;
    sums.s1 += x;
    sums.s2 += xx;
    sums.s3 += xx * x;
    sums.s4 += xx * xx;
  }
  return sums;
}

/// `tile` is rows × kStrip; the strip's columns are independent of each other.
void column_sums(const float* HWY_RESTRICT tile, int64_t rows, ColumnSums& HWY_RESTRICT out) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t column = 0; column < kStrip; column += 2 * lanes) {  // two vectors hide each other's latency
    const float* HWY_RESTRICT top = tile + column;
    auto min0 = hn::LoadU(df, top), max0 = min0, sum0 = hn::Zero(df);
    auto min1 = hn::LoadU(df, top + lanes), max1 = min1, sum1 = sum0;
    for (int64_t row = 0; row < rows; ++row) {
      const auto v0 = hn::LoadU(df, top + row * kStrip);
      const auto v1 = hn::LoadU(df, top + row * kStrip + lanes);
      min0 = hn::Min(min0, v0);
      min1 = hn::Min(min1, v1);
      max0 = hn::Max(max0, v0);
      max1 = hn::Max(max1, v1);
      sum0 = hn::Add(sum0, v0);
      sum1 = hn::Add(sum1, v1);
    }
    const auto zero = hn::Zero(df);
    hn::StoreU(hn::Add(min0, zero), df, out.min + column);  // -0 becomes 0
    hn::StoreU(hn::Add(min1, zero), df, out.min + column + lanes);
    hn::StoreU(hn::Add(max0, zero), df, out.max + column);
    hn::StoreU(hn::Add(max1, zero), df, out.max + column + lanes);
    hn::StoreU(sum0, df, out.sum + column);
    hn::StoreU(sum1, df, out.sum + column + lanes);
    for (int64_t i = column; i < column + 2 * lanes; ++i) {
      out.shift[i] = shift_for(out.min[i], out.max[i], out.sum[i], rows);
    }

    const auto shift0 = hn::LoadU(d, out.shift + column);
    const auto shift1 = hn::LoadU(d, out.shift + column + lanes);
    auto a1 = hn::Zero(d), a2 = a1, a3 = a1, a4 = a1;
    auto b1 = a1, b2 = a1, b3 = a1, b4 = a1;
    for (int64_t row = 0; row < rows; ++row) {
      add_powers(hn::PromoteTo(d, hn::LoadU(df, top + row * kStrip)), shift0, a1, a2, a3, a4);
      add_powers(hn::PromoteTo(d, hn::LoadU(df, top + row * kStrip + lanes)), shift1, b1, b2, b3, b4);
    }
    hn::StoreU(a1, d, out.s1 + column);
    hn::StoreU(a2, d, out.s2 + column);
    hn::StoreU(a3, d, out.s3 + column);
    hn::StoreU(a4, d, out.s4 + column);
    hn::StoreU(b1, d, out.s1 + column + lanes);
    hn::StoreU(b2, d, out.s2 + column + lanes);
    hn::StoreU(b3, d, out.s3 + column + lanes);
    hn::StoreU(b4, d, out.s4 + column + lanes);
  }
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {
namespace {

HWY_EXPORT(power_sums);
HWY_EXPORT(column_sums);

/// Moments of `count` finite values from their sums about `shift`.
Moments from_sums(int64_t count, float min, float max, double shift, const PowerSums& sums) {
  const double n = static_cast<double>(count);
  const double delta = sums.s1 / n;
  Moments result;
  result.count = count;
  result.min = min;
  result.max = max;
  result.mean = shift + delta;
  result.m2 = std::max(0.0, sums.s2 - delta * sums.s1);
  result.m3 = sums.s3 - delta * (3 * sums.s2 - 2 * delta * sums.s1);
  result.m4 = std::max(0.0, sums.s4 - delta * (4 * sums.s3 - delta * (6 * sums.s2 - 3 * delta * sums.s1)));
  return result;
}

/// At most kBlock values.
Moments of_block(const float* values, int64_t count) {
  NonFinite others;
  BlockRange range = block_range(values, count);
  float finite[kBlock];
  if (!std::isfinite(range.sum)) {
    count = keep_finite(values, count, finite, others);
    values = finite;
    if (count > 0) range = block_range(values, count);
  }
  Moments result;
  if (count > 0) {
    const double shift = shift_for(range.min, range.max, range.sum, count);
    result = from_sums(count, range.min, range.max, shift, HWY_DYNAMIC_DISPATCH(power_sums)(values, count, shift));
  }
  result.non_finite = others;
  return result;
}

Moments of_range(const FloatView& in, int64_t begin, int64_t end) {
  Moments result;
  float scratch[kBlock];
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t count = std::min(kBlock, end - i);
    result.merge(of_block(load_floats(in, i, count, scratch), count));
  }
  return result;
}

// Column path: `in` from `offset` is rows × columns, and every column gets its own Moments.

constexpr int64_t kTileRows = 512;

void update_strip(const FloatView& in, int64_t offset, int64_t rows, int64_t columns, int64_t first, Moments* out) {
  const int64_t width = std::min(kStrip, columns - first);
  std::vector<float> tile(static_cast<size_t>(std::min(rows, kTileRows) * kStrip));
  float scratch[kStrip];
  ColumnSums sums;
  for (int64_t top = 0; top < rows; top += kTileRows) {
    const int64_t height = std::min(kTileRows, rows - top);
    for (int64_t row = 0; row < height; ++row) {
      const float* line = load_floats(in, offset + (top + row) * columns + first, width, scratch);
      std::copy_n(line, width, tile.data() + row * kStrip);
    }
    HWY_DYNAMIC_DISPATCH(column_sums)(tile.data(), height, sums);
    for (int64_t c = 0; c < width; ++c) {
      if (std::isfinite(sums.sum[c])) {
        out[c].merge(from_sums(height, sums.min[c], sums.max[c], sums.shift[c],
                               {sums.s1[c], sums.s2[c], sums.s3[c], sums.s4[c]}));
      } else {
        float column[kTileRows];
        for (int64_t row = 0; row < height; ++row) column[row] = tile[static_cast<size_t>(row * kStrip + c)];
        out[c].merge(of_block(column, height));
      }
    }
  }
}

std::vector<Moments> column_moments(const FloatView& in, int64_t offset, int64_t rows, int64_t columns) {
  std::vector<Moments> result(static_cast<size_t>(columns));
  const int64_t strips = (columns + kStrip - 1) / kStrip;
  const int64_t grain = std::max<int64_t>(1, kChunk / (rows * kStrip));
  parallel_for(0, strips, grain, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      update_strip(in, offset, rows, columns, strip * kStrip, result.data() + strip * kStrip);
    }
  });
  return result;
}

/// For a short `inner`: columns are (fold rows) × channels × inner, so that there are enough of them to share out.
void update_by_columns(const FloatView& in, int64_t outer, int64_t inner, std::vector<Moments>& channels) {
  const int64_t count = std::ssize(channels);
  const int64_t line = count * inner;
  const int64_t fold = std::clamp<int64_t>(32 * kStrip / line, 1, std::max<int64_t>(1, outer / kTileRows));
  const auto add = [&](int64_t offset, int64_t rows, int64_t columns) {
    const std::vector<Moments> parts = column_moments(in, offset, rows, columns);
    for (int64_t i = 0; i < columns; ++i) {
      channels[static_cast<size_t>(i % line / inner)].merge(parts[static_cast<size_t>(i)]);
    }
  };
  const int64_t folded = outer / fold;
  add(0, folded, fold * line);
  if (outer % fold != 0) add(folded * fold * line, outer % fold, line);
}

void update_by_runs(const FloatView& in, int64_t outer, int64_t inner, std::vector<Moments>& channels) {
  const int64_t count = std::ssize(channels);
  if (inner >= 4 * kChunk) {  // long runs are shared out themselves: there may be a single one
    const int64_t bytes = in.type == FloatView::Type::Float32 ? sizeof(float) : sizeof(uint16_t);
    for (int64_t run = 0; run < outer * count; ++run) {
      const auto* start = static_cast<const std::byte*>(in.data) + run * inner * bytes;
      channels[static_cast<size_t>(run % count)].update({start, inner, in.type});
    }
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kChunk / (outer * inner));
  parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      for (int64_t i = 0; i < outer; ++i) {
        const int64_t start = (i * count + channel) * inner;
        channels[static_cast<size_t>(channel)].merge(of_range(in, start, start + inner));
      }
    }
  });
}

}  // namespace

void Moments::update(FloatView in) {
  check_view(in, "in");
  std::vector<Moments> chunks(static_cast<size_t>((in.size + kChunk - 1) / kChunk));
  parallel_for(0, std::ssize(chunks), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      chunks[static_cast<size_t>(i)] = of_range(in, i * kChunk, std::min(in.size, (i + 1) * kChunk));
    }
  });
  for (const Moments& chunk : chunks) merge(chunk);
}

void Moments::merge(const Moments& other) {
  non_finite.merge(other.non_finite);
  if (other.count == 0) return;
  if (count == 0) {
    const NonFinite others = non_finite;
    *this = other;
    non_finite = others;
    return;
  }
  const double na = static_cast<double>(count);
  const double nb = static_cast<double>(other.count);
  const double n = na + nb;
  const double a = na / n;
  const double b = nb / n;
  const double delta = other.mean - mean;
  const double square = delta * delta * na * b;  // what the distance of the two means adds to m2
  m4 += other.m4 + square * delta * delta * (a * a - a * b + b * b) +
        6 * delta * delta * (a * a * other.m2 + b * b * m2) + 4 * delta * (a * other.m3 - b * m3);
  m3 += other.m3 + square * delta * (a - b) + 3 * delta * (a * other.m2 - b * m2);
  m2 += other.m2 + square;
  mean += delta * b;
  count += other.count;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
}

float Moments::absmax() const { return count == 0 ? 0 : std::max(std::fabs(min), std::fabs(max)); }

double Moments::variance() const { return count == 0 ? 0 : m2 / static_cast<double>(count); }

double Moments::stddev() const { return std::sqrt(variance()); }

double Moments::skewness() const { return m2 == 0 ? 0 : m3 / static_cast<double>(count) / (variance() * stddev()); }

double Moments::kurtosis() const { return m2 == 0 ? 0 : m4 / static_cast<double>(count) / (variance() * variance()); }

void ChannelMoments::update(FloatView in, std::span<const int64_t> shape, int64_t axis) {
  check_view(in, "in");
  const Tiling whole = Tiling::per_tensor(shape);
  const size_t along = check_axis(axis, shape);
  check_size(in.size, whole.element_count(), "in");
  if (in.size == 0) return;
  expect_channels(shape[along]);
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < along; ++i) outer *= shape[i];
  for (size_t i = along + 1; i < shape.size(); ++i) inner *= shape[i];
  if (inner < 64 && outer > inner) {
    update_by_columns(in, outer, inner, channels_);
  } else {
    update_by_runs(in, outer, inner, channels_);
  }
}

void ChannelMoments::merge(const ChannelMoments& other) {
  if (other.channels_.empty()) return;
  expect_channels(std::ssize(other.channels_));
  for (size_t i = 0; i < channels_.size(); ++i) channels_[i].merge(other.channels_[i]);
}

Moments ChannelMoments::total() const {
  Moments result;
  for (const Moments& channel : channels_) result.merge(channel);
  return result;
}

void ChannelMoments::expect_channels(int64_t count) {
  if (channels_.empty()) channels_.resize(static_cast<size_t>(count));
  if (std::ssize(channels_) != count) {
    fail(ErrorCode::InvalidInput, "shape", "{} channels along the axis where {} were seen before", count,
         channels_.size());
  }
}

}  // namespace kaon
#endif
