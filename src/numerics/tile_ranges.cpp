#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

#include "base/parallel.h"
#include "numerics/check.h"
#include "numerics/float_blocks.h"
#include "numerics/half.h"
#include "numerics/row_plan.h"
#include "numerics/scale.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/tile_ranges.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// A comparison with NaN is false, so NaN never replaces an extreme; Min and Max do not promise that on every target.
template <class V>
HWY_INLINE V lower(V x, V low) {
  return hn::IfThenElse(hn::Lt(x, low), x, low);
}
template <class V>
HWY_INLINE V higher(V x, V high) {
  return hn::IfThenElse(hn::Gt(x, high), x, high);
}

using Tag = hn::ScalableTag<float>;

struct Floats {
  const float* HWY_RESTRICT values;

  HWY_INLINE hn::Vec<Tag> vector(int64_t i) const { return hn::LoadU(Tag(), values + i); }
  HWY_INLINE float one(int64_t i) const { return values[i]; }
};

struct BFloats {
  const uint16_t* HWY_RESTRICT values;

  HWY_INLINE hn::Vec<Tag> vector(int64_t i) const {
    const hn::RebindToUnsigned<Tag> du;
    const auto halves = hn::LoadU(hn::Rebind<uint16_t, Tag>(), values + i);
    return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(du, halves)));
  }
  HWY_INLINE float one(int64_t i) const { return bfloat16_to_float32(values[i]); }
};

/// Widens {low, high} by the values in [begin, end).
template <class Values>
HWY_INLINE void widen(const Values& values, int64_t begin, int64_t end, float& low, float& high) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  if (i + lanes <= end) {
    auto low0 = hn::Set(d, low), high0 = hn::Set(d, high);
    if (i + 4 * lanes <= end) {
      auto low1 = low0, low2 = low0, low3 = low0, high1 = high0, high2 = high0, high3 = high0;
      for (; i + 4 * lanes <= end; i += 4 * lanes) {
        const auto x0 = values.vector(i), x1 = values.vector(i + lanes);
        const auto x2 = values.vector(i + 2 * lanes), x3 = values.vector(i + 3 * lanes);
        low0 = lower(x0, low0);
        low1 = lower(x1, low1);
        low2 = lower(x2, low2);
        low3 = lower(x3, low3);
        high0 = higher(x0, high0);
        high1 = higher(x1, high1);
        high2 = higher(x2, high2);
        high3 = higher(x3, high3);
      }
      low0 = lower(lower(low0, low1), lower(low2, low3));
      high0 = higher(higher(high0, high1), higher(high2, high3));
    }
    for (; i + lanes <= end; i += lanes) {
      const auto x = values.vector(i);
      low0 = lower(x, low0);
      high0 = higher(x, high0);
    }
    low = hn::GetLane(hn::MinOfLanes(d, low0));
    high = hn::GetLane(hn::MaxOfLanes(d, high0));
  }
  for (; i < end; ++i) {
    const float x = values.one(i);
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
}

/// Widens the ranges of tiles by `count` values; the first lies at `offset` of its tile.
template <class Values>
HWY_INLINE void widen_row(const Values& values, int64_t count, int64_t tile, int64_t offset, float* low, float* high) {
  for (int64_t i = 0, t = 0; i < count; ++t) {
    const int64_t stop = std::min(count, (t + 1) * tile - offset);
    widen(values, i, stop, low[t], high[t]);
    i = stop;
  }
}

/// Widens {low[i], high[i]} by values[i], values[i + stride] … of `rows` rows.
HWY_INLINE void widen_each(const float* HWY_RESTRICT values, int64_t rows, int64_t stride, int64_t count,
                           float* HWY_RESTRICT low, float* HWY_RESTRICT high) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    auto low_i = hn::LoadU(d, low + i), high_i = hn::LoadU(d, high + i);
    for (int64_t row = 0; row < rows; ++row) {
      const auto x = hn::LoadU(d, values + row * stride + i);
      low_i = lower(x, low_i);
      high_i = higher(x, high_i);
    }
    hn::StoreU(low_i, d, low + i);
    hn::StoreU(high_i, d, high + i);
  }
  for (; i < count; ++i) {
    for (int64_t row = 0; row < rows; ++row) {
      const float x = values[row * stride + i];
      low[i] = x < low[i] ? x : low[i];
      high[i] = x > high[i] ? x : high[i];
    }
  }
}

/// How many whole rows from `row` on have the same tiles and can be read where they are.
int64_t rows_alike(const FloatView& in, const RowPlan& plan, int64_t row, int64_t end) {
  constexpr int64_t kMost = 8;  // as many streams as hardware prefetchers follow with ease
  const bool in_place =
      in.type == FloatView::Type::Float32 && reinterpret_cast<uintptr_t>(in.data) % alignof(float) == 0;
  const int64_t most = in_place ? std::min(kMost, end / plan.row_size() - row) : 1;
  int64_t rows = 1;
  while (rows < most && plan.first_tile(row + rows) == plan.first_tile(row)) ++rows;
  return rows;
}

/// Widens the ranges of the tiles that elements [begin, end) belong to.
void widen_tiles(const FloatView& in, const RowPlan& plan, int64_t begin, int64_t end, float* low, float* high) {
  HWY_ALIGN_MAX float scratch[kBlock];
  const bool in_place = in.type == FloatView::Type::BFloat16 && reinterpret_cast<uintptr_t>(in.data) % 2 == 0;
  const auto* bfloats = in_place ? static_cast<const uint16_t*>(in.data) : nullptr;
  const int64_t row_size = plan.row_size(), tile = plan.tile();
  for (int64_t index = begin; index < end;) {
    const int64_t row = index / row_size, offset = index % row_size;
    const int64_t first = plan.first_tile(row) + offset / tile;
    const int64_t rows = tile == 1 && offset == 0 ? rows_alike(in, plan, row, end) : 1;
    const int64_t count = rows > 1 ? rows * row_size : std::min({end - index, row_size - offset, kBlock});
    if (tile > 1 && bfloats != nullptr) {
      widen_row(BFloats{bfloats + index}, count, tile, offset % tile, low + first, high + first);
    } else {
      const float* values = load_floats(in, index, count, scratch);
      if (tile == 1) {
        widen_each(values, rows, row_size, count / rows, low + first, high + first);
      } else {
        widen_row(Floats{values}, count, tile, offset % tile, low + first, high + first);
      }
    }
    index += count;
  }
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {

HWY_EXPORT(widen_tiles);

namespace {

constexpr int64_t kGrain = int64_t{1} << 16;  // elements
constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

std::vector<Range> tile_ranges(FloatView in, const Tiling& tiling) {
  check_view(in, "in");
  check_tiling(tiling);
  check_size(in.size, tiling.element_count(), "in");
  if (in.size == 0) return std::vector<Range>(tiling.tile_count());
  const RowPlan plan(tiling);
  std::vector<float> low(tiling.tile_count(), kInf), high(tiling.tile_count(), -kInf);

  const int64_t run = plan.independent_run();
  if (in.size >= 8 * thread_count() * run) {
    parallel_for(0, in.size, std::max(run, kGrain / run * run), [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(widen_tiles)(in, plan, begin, end, low.data(), high.data());
    });
  } else {
    // Threads may meet in a tile: each has ranges of its own, and they are merged.
    std::mutex mutex;
    parallel_for(0, in.size, kGrain, [&](int64_t begin, int64_t end) {
      std::vector<float> own_low(low.size(), kInf), own_high(high.size(), -kInf);
      HWY_DYNAMIC_DISPATCH(widen_tiles)(in, plan, begin, end, own_low.data(), own_high.data());
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < low.size(); ++i) {
        low[i] = std::min(low[i], own_low[i]);
        high[i] = std::max(high[i], own_high[i]);
      }
    });
  }

  std::vector<Range> ranges(low.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    // Adding 0 makes the sign of a zero the same whatever the order of the elements.
    if (low[i] <= high[i]) ranges[i] = {low[i] + 0.0f, high[i] + 0.0f};
  }
  return ranges;
}

}  // namespace kaon
#endif
