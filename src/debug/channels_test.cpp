#include "debug/channels.h"

#include <gtest/gtest.h>

#include <cmath>

#include "quant/networks_test.h"

namespace kaon {
namespace {

/// Sums of one channel, one element at a time.
ChannelStats slow(const std::vector<float>& x, const std::vector<float>& q, const ChannelView& view, int64_t channel) {
  ChannelStats stats{INFINITY, -INFINITY, 0, 0, 0};
  int64_t count = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (static_cast<int64_t>(i) / view.inner % view.channels != channel || !std::isfinite(x[i])) continue;
    stats.min = std::min(stats.min, x[i]);
    stats.max = std::max(stats.max, x[i]);
    stats.abs_mean += std::fabs(x[i]);
    ++count;
    stats.energy += static_cast<double>(x[i]) * x[i];
    stats.squared_error += std::pow(static_cast<double>(q[i]) - x[i], 2);
  }
  if (count == 0) return {};
  stats.abs_mean /= static_cast<double>(count);
  return stats;
}

void expect_same(const std::vector<float>& x, const ChannelView& view) {
  std::vector<float> q = x;
  for (float& value : q) value = std::isfinite(value) ? std::nearbyint(value * 8) / 8 : value;
  ChannelCounter counter;
  counter.update(x, q, view);
  const std::vector<ChannelStats> stats = counter.stats();
  ASSERT_EQ(std::ssize(stats), view.channels);
  for (int64_t c = 0; c < view.channels; ++c) {
    const ChannelStats& fast = stats[static_cast<size_t>(c)];
    const ChannelStats expected = slow(x, q, view, c);
    EXPECT_EQ(fast.min, expected.min) << c;
    EXPECT_EQ(fast.max, expected.max) << c;
    EXPECT_NEAR(fast.abs_mean, expected.abs_mean, 1e-6 * expected.abs_mean) << c;
    EXPECT_NEAR(fast.energy, expected.energy, 1e-6 * expected.energy) << c;
    EXPECT_NEAR(fast.squared_error, expected.squared_error, 1e-6 * expected.squared_error) << c;
  }
}

TEST(Channels, EveryLayoutGivesTheSums) {
  const Shape shapes[] = {{3, 5, 7, 9}, {2, 3, 1, 1}, {1, 4, 40, 41}, {600, 33}, {7, 1},
                          {3, 4, 50},   {5},          {2, 16, 3, 5}};
  for (const Shape& shape : shapes) {
    for (int64_t axis = 0; axis < std::ssize(shape); ++axis) {
      SCOPED_TRACE(to_string(shape) + fmt::format(" axis {}", axis));
      std::vector<float> x = random_values(element_count(shape), 3);
      expect_same(x, ChannelView::of(shape, axis));
      x[x.size() / 2] = NAN;
      x.back() = INFINITY;
      x.front() = -INFINITY;
      expect_same(x, ChannelView::of(shape, axis));
    }
  }
}

TEST(Channels, LargeNumbersDoNotOverflow) {
  std::vector<float> x = random_values(4000, 4, 1e25F);
  expect_same(x, ChannelView::of(Shape{2, 2, 1000}, 1));
  expect_same(x, ChannelView::of(Shape{400, 10}, 1));
}

TEST(Channels, AChangingNumberOfThemGivesNone) {
  ChannelCounter counter;
  const std::vector<float> x(12, 1.0F);
  counter.update(x, x, ChannelView::of(Shape{3, 4}, 1));
  counter.update(x, x, ChannelView::of(Shape{4, 3}, 1));
  EXPECT_TRUE(counter.stats().empty());
}

TEST(Channels, MeansGoOverTheSeedsAxes) {
  AbsMeans means;
  // [sample, token, channel]: rows are tokens.
  means.update(std::vector<float>{1, -2, 3, -4, 5, 6, -7, 8}, ChannelView::of(Shape{2, 2, 2}, 2));
  means.finish();
  EXPECT_EQ(means.over_rows().count(), 4);
  EXPECT_EQ(means.over_rows().min(), 2);  // (1 + 3) / 2
  EXPECT_EQ(means.over_rows().max(), 7);  // (6 + 8) / 2
  EXPECT_EQ(means.over_channels().count(), 4);
  EXPECT_EQ(means.over_channels().min(), 1.5F);
  EXPECT_EQ(means.over_channels().max(), 7.5F);

  AbsMeans images;  // [N, C, H, W]: one mean for each channel over all batches, one for each pixel
  const std::vector<float> first = {1, 1, 1, 1, 3, 3, 3, 3}, second = {2, 2, 2, 2, -5, -5, -5, -5};
  images.update(first, ChannelView::of(Shape{1, 2, 2, 2}, 1));
  images.update(second, ChannelView::of(Shape{1, 2, 2, 2}, 1));
  images.finish();
  EXPECT_EQ(images.over_rows().count(), 2);
  EXPECT_EQ(images.over_rows().min(), 1.5F);
  EXPECT_EQ(images.over_rows().max(), 4);
  EXPECT_EQ(images.over_channels().count(), 8);
  EXPECT_EQ(images.over_channels().max(), 3.5F);
}

}  // namespace
}  // namespace kaon
