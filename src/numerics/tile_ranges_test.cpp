#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/kernel_test_data.h"
#include "numerics/reference.h"
#include "numerics/scale.h"
#include "numerics/test_targets-inl.h"

namespace kaon {

namespace {

std::vector<Range> expected_ranges(FloatView in, const Tiling& tiling) {
  std::vector<Range> ranges(static_cast<size_t>(tiling.tile_count()), {INFINITY, -INFINITY});
  for (int64_t i = 0; i < in.size; ++i) {
    const float x = in.at(i);
    if (std::isnan(x)) continue;
    Range& range = ranges[reference::tile_of(tiling, i)];
    range = {std::min(range.min, x), std::max(range.max, x)};
  }
  for (Range& range : ranges) {
    if (range.min > range.max) range = {0, 0};
  }
  return ranges;
}

void expect_ranges(FloatView in, const Tiling& tiling) {
  const std::vector<Range> expected = expected_ranges(in, tiling);
  for_each_simd_target([&] {
    const std::vector<Range> got = tile_ranges(in, tiling);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].min, expected[i].min) << "tile " << i;
      ASSERT_EQ(got[i].max, expected[i].max) << "tile " << i;
      ASSERT_FALSE(got[i].min == 0 && std::signbit(got[i].min)) << "tile " << i;
      ASSERT_FALSE(got[i].max == 0 && std::signbit(got[i].max)) << "tile " << i;
    }
  });
}

/// One in eight NaN, some Inf, some zeros; the first 70 are all NaN.
std::vector<float> mixed_values(int64_t count) {
  std::vector<float> values = normal_values(count, 2, 6);
  std::mt19937 random(1);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t kind = random() % 64;
    if (kind < 8 || i < 70)
      values[i] = NAN;
    else if (kind == 8)
      values[i] = random() % 2 == 0 ? INFINITY : -INFINITY;
    else if (kind < 12)
      values[i] = random() % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

TEST(TileRanges, EveryTiling) {
  const std::vector<std::vector<int64_t>> shapes{{3, 5, 7, 4}, {2, 67, 33}, {1, 1, 40}, {170}, {}, {6, 130}, {0, 4}};
  for (const auto& shape : shapes) {
    std::vector<Tiling> tilings{Tiling::per_tensor(shape)};
    for (int64_t axis = 0; axis < std::ssize(shape); ++axis) {
      tilings.push_back(Tiling::per_channel(shape, axis));
      for (const int64_t group : {2, 3, 17, 32}) tilings.push_back(Tiling::per_group(shape, axis, group));
    }
    if (shape.size() > 1) tilings.push_back(Tiling::per_block(shape, 2, 3));
    for (const Tiling& tiling : tilings) {
      SCOPED_TRACE(fmt::format("shape [{}] tile [{}]", fmt::join(tiling.shape, ","), fmt::join(tiling.tile, ",")));
      expect_ranges(mixed_values(tiling.element_count()), tiling);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(TileRanges, EveryLengthAndAlignment) {
  for (const int64_t n : {1, 4, 8, 16, 4096}) {
    for (const int64_t length : {int64_t{0}, int64_t{1}, n - 1, n, n + 1, 4 * n, 8 * n + 2}) {
      for (const size_t offset : {0, 1, 3}) {
        std::vector<float> values = normal_values(length + 4, 1, 9);
        const int64_t shape[] = {length};
        // The extremes at the ends are the ones that a wrong tail loses.
        if (length > 0) values[offset + static_cast<size_t>(length) - 1] = 100;
        if (length > 1) values[offset] = -100;
        expect_ranges(std::span<const float>(values).subspan(offset, static_cast<size_t>(length)),
                      Tiling::per_tensor(shape));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(TileRanges, SixteenBitInput) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  const int64_t shape[] = {256, 256};
  for (const FloatView::Type type : {FloatView::Type::Float16, FloatView::Type::BFloat16}) {
    const FloatView in(halves.data(), std::ssize(halves), type);
    expect_ranges(in, Tiling::per_channel(shape, 0));
    expect_ranges(in, Tiling::per_channel(shape, 1));
  }
}

TEST(TileRanges, ThreadsChangeNothing) {
  const int threads = thread_count();
  const std::vector<std::vector<int64_t>> shapes{{7, 50021}, {300, 1024}, {3, 64, 2000}};
  for (const auto& shape : shapes) {
    for (const Tiling& tiling :
         {Tiling::per_tensor(shape), Tiling::per_channel(shape, 0), Tiling::per_channel(shape, 1),
          Tiling::per_group(shape, 1, 32), Tiling::per_group(shape, 0, 2)}) {
      const std::vector<float> in = mixed_values(tiling.element_count());
      for (const int count : {1, 2, 3}) {
        set_thread_count(count);
        expect_ranges(in, tiling);
      }
      set_thread_count(threads);
    }
  }
}

TEST(TileRanges, BadParametersAreNamed) {
  const std::vector<float> in(12);
  const int64_t shape[] = {13};
  try {
    tile_ranges(in, Tiling::per_tensor(shape));
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.where(), "in");
  }
}

}  // namespace

}  // namespace kaon
