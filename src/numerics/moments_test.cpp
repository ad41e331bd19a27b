#include "numerics/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/half.h"
#include "numerics/statistics_test_data.h"
#include "numerics/test_targets-inl.h"

namespace kaon {
namespace {

/// Two passes in long double.
struct Reference {
  int64_t count = 0, nan = 0, pos_inf = 0, neg_inf = 0;
  float min = kInf, max = -kInf;
  long double mean = 0, m2 = 0, m3 = 0, m4 = 0;

  template <typename Range>
  explicit Reference(const Range& values) {
    long double sum = 0;
    for (const float value : values) {
      nan += std::isnan(value);
      pos_inf += value == kInf;
      neg_inf += value == -kInf;
      if (!std::isfinite(value)) continue;
      ++count;
      sum += value;
      min = std::min(min, value);
      max = std::max(max, value);
    }
    if (count > 0) mean = sum / count;
    for (const float value : values) {
      if (!std::isfinite(value)) continue;
      const long double x = value - mean;
      m2 += x * x;
      m3 += x * x * x;
      m4 += x * x * x * x;
    }
  }
};

void expect_equal(const Moments& moments, const Reference& reference) {
  EXPECT_EQ(moments.count, reference.count);
  EXPECT_EQ(moments.non_finite, (NonFinite{reference.nan, reference.pos_inf, reference.neg_inf}));
  EXPECT_EQ(moments.min, reference.min);
  EXPECT_EQ(moments.max, reference.max);
  const double stddev = std::sqrt(static_cast<double>(reference.m2 / std::max<int64_t>(reference.count, 1)));
  const double size = std::max(std::fabs(static_cast<double>(reference.mean)), stddev);
  EXPECT_NEAR(moments.mean, static_cast<double>(reference.mean), 1e-13 * size);
  EXPECT_NEAR(moments.m2, static_cast<double>(reference.m2), 1e-12 * static_cast<double>(reference.m2));
  // The third moment may cancel to nothing, so its yardstick is that of its terms.
  EXPECT_NEAR(moments.m3, static_cast<double>(reference.m3), 1e-11 * stddev * static_cast<double>(reference.m2));
  EXPECT_NEAR(moments.m4, static_cast<double>(reference.m4), 1e-11 * static_cast<double>(reference.m4));
}

TEST(Moments, equal_two_passes_in_long_double_on_every_target) {
  const std::vector<float> values = normal(kChunk + 2 * kBlock + 40, 0.3f, 2.0f);
  for_each_simd_target([&] {
    const int64_t n = static_cast<int64_t>(HWY_MAX_BYTES / sizeof(float));
    std::vector<int64_t> lengths{kBlock - 1, kBlock, kBlock + 1, 8 * kBlock + 2, kChunk - 1, kChunk, kChunk + 1};
    for (int64_t lanes = 1; lanes <= n; lanes *= 2) {
      for (const int64_t length : {lanes - 1, lanes, lanes + 1, 8 * lanes + 2}) lengths.push_back(length);
    }
    for (const int64_t length : lengths) {
      for (const int64_t offset : {0, 1, 3}) {
        SCOPED_TRACE(testing::Message() << length << " from " << offset);
        const std::span<const float> part(values.data() + offset, static_cast<size_t>(length));
        Moments moments;
        moments.update(part);
        expect_equal(moments, Reference(part));
      }
    }
  });
}

TEST(Moments, survive_a_mean_far_from_zero) {
  for_each_simd_target([] {
    for (const auto& [mean, stddev] : {std::pair{1000.0f, 1e-3f}, {-1e6f, 1.0f}, {3e30f, 1e25f}, {1e-39f, 1e-40f}}) {
      SCOPED_TRACE(mean);
      const std::vector<float> values = normal(3 * kChunk + 7, mean, stddev);
      Moments moments;
      moments.update(values);
      const Reference reference(values);
      EXPECT_NEAR(moments.mean, static_cast<double>(reference.mean), 1e-14 * std::fabs(mean));
      EXPECT_NEAR(moments.m2 / static_cast<double>(reference.m2), 1, 1e-11);
      const long double kurtosis = reference.m4 * reference.count / (reference.m2 * reference.m2);
      EXPECT_NEAR(moments.kurtosis(), static_cast<double>(kurtosis), 1e-9);
    }
  });
}

TEST(Moments, of_a_drift_keep_their_digits) {
  std::vector<float> values(4 * kChunk);
  for (size_t i = values.size() / 2; i < values.size(); ++i) values[i] = 1000.0f + 1e-3f * static_cast<float>(i % 7);
  Moments moments;
  moments.update(values);
  expect_equal(moments, Reference(values));
}

TEST(Moments, huge_values_do_not_overflow) {
  const float big = std::numeric_limits<float>::max();
  std::vector<float> values(1000, big);
  for (size_t i = 0; i < values.size(); i += 2) values[i] = -big / 2;
  for_each_simd_target([&] {
    Moments moments;
    moments.update(values);
    expect_equal(moments, Reference(values));
    EXPECT_EQ(moments.non_finite.total(), 0);
  });
}

TEST(Moments, of_a_constant_have_no_variance) {
  for (const float value : {0.1f, -1e30f, 0.0f, 5e-45f}) {
    const std::vector<float> values(kChunk + 77, value);
    Moments moments;
    moments.update(values);
    EXPECT_EQ(moments.mean, value);
    EXPECT_EQ(moments.variance(), 0);
    EXPECT_EQ(moments.kurtosis(), 0);
    EXPECT_EQ(moments.skewness(), 0);
    EXPECT_EQ(moments.absmax(), std::fabs(value));
  }
}

TEST(Moments, of_nothing_are_defined) {
  Moments moments;
  moments.update(std::vector<float>{});
  EXPECT_EQ(moments, Moments{});
  EXPECT_EQ(moments.absmax(), 0);
  EXPECT_EQ(moments.variance(), 0);
  EXPECT_GT(moments.min, moments.max);
}

TEST(Moments, count_and_leave_out_what_is_not_finite) {
  for_each_simd_target([] {
    for (const int64_t length : {1, 2, 15, 16, 17, 130, 5000}) {
      std::vector<float> values = normal(length, 1, 1);
      for (size_t i = 0; i < values.size(); ++i) {
        if (i % 7 == 0) values[i] = kNan;
        if (i % 11 == 1) values[i] = kInf;
        if (i % 13 == 2) values[i] = -kInf;
      }
      Moments moments;
      moments.update(values);
      expect_equal(moments, Reference(values));
    }
  });
  Moments moments;
  moments.update(std::vector<float>{kNan, kInf, kNan});
  EXPECT_EQ(moments.count, 0);
  EXPECT_EQ(moments.non_finite, (NonFinite{2, 1, 0}));
}

TEST(Moments, halves_merged_equal_the_whole) {
  std::vector<float> values = normal(3 * kChunk + 1001, 5, 0.1f);
  values[17] = kNan;
  values[90000] = -kInf;
  const Reference reference(values);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{4097}, values.size() / 2, values.size()}) {
    Moments first, second;
    first.update(std::span<const float>(values).first(cut));
    second.update(std::span<const float>(values).subspan(cut));
    Moments other_way = second;
    other_way.merge(first);
    first.merge(second);
    expect_equal(first, reference);
    expect_equal(other_way, reference);
  }
}

TEST(Moments, do_not_depend_on_the_threads) {
  const std::vector<float> values = normal(9 * kChunk + 123, -2, 3);
  const int before = thread_count();
  set_thread_count(1);
  Moments one;
  one.update(values);
  ChannelMoments one_by_channel;
  const int64_t columns = 96;
  const int64_t rows = std::ssize(values) / columns;
  const FloatView matrix(values.data(), rows * columns, FloatView::Type::Float32);
  one_by_channel.update(matrix, std::vector{rows, columns}, 1);
  for (const int threads : {2, 3, 7}) {
    set_thread_count(threads);
    Moments many;
    many.update(values);
    EXPECT_EQ(many, one);
    ChannelMoments by_channel;
    by_channel.update(matrix, std::vector{rows, columns}, 1);
    EXPECT_EQ(by_channel.channels(), one_by_channel.channels());
  }
  set_thread_count(before);
}

TEST(Moments, of_half_precision_are_those_of_the_converted) {
  const std::vector<float> values = normal(10001, 0, 1);
  std::vector<uint16_t> halves(values.size()), bfloats(values.size());
  std::vector<float> from_half(values.size()), from_bfloat(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    halves[i] = float32_to_float16(values[i]);
    bfloats[i] = float32_to_bfloat16(values[i]);
    from_half[i] = float16_to_float32(halves[i]);
    from_bfloat[i] = bfloat16_to_float32(bfloats[i]);
  }
  Moments a, b, c, d;
  a.update({halves.data(), std::ssize(halves), FloatView::Type::Float16});
  b.update(from_half);
  c.update({bfloats.data(), std::ssize(bfloats), FloatView::Type::BFloat16});
  d.update(from_bfloat);
  EXPECT_EQ(a, b);
  EXPECT_EQ(c, d);
}

TEST(Moments, of_known_shapes) {
  Moments two_points;
  two_points.update(std::vector<float>{-1, 1, -1, 1});
  EXPECT_EQ(two_points.variance(), 1);
  EXPECT_EQ(two_points.kurtosis(), 1);
  EXPECT_EQ(two_points.skewness(), 0);
  Moments skewed;
  skewed.update(std::vector<float>{0, 0, 0, 4});
  EXPECT_NEAR(skewed.skewness(), 2 / std::sqrt(3.0), 1e-15);
  Moments bell;
  bell.update(normal(1 << 20, 3, 2));
  EXPECT_NEAR(bell.kurtosis(), 3, 0.03);
}

void check_channels(const std::vector<int64_t>& shape, int64_t axis, bool with_nan) {
  SCOPED_TRACE(testing::Message() << testing::PrintToString(shape) << " axis " << axis);
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  std::vector<float> values = normal(size, 2, 1, static_cast<unsigned>(size));
  const size_t along = static_cast<size_t>(axis < 0 ? axis + std::ssize(shape) : axis);
  int64_t inner = 1;
  for (size_t i = along + 1; i < shape.size(); ++i) inner *= shape[i];
  std::vector<std::vector<float>> expected(static_cast<size_t>(shape[along]));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t channel = i / inner % shape[along];
    float& value = values[static_cast<size_t>(i)];
    value = value * static_cast<float>(1 + channel % 5) + static_cast<float>(channel);
    if (with_nan && i % 97 == 3) value = i % 2 == 0 ? kNan : -kInf;
    expected[static_cast<size_t>(channel)].push_back(value);
  }
  ChannelMoments moments;
  moments.update(values, shape, axis);
  ASSERT_EQ(moments.channels().size(), expected.size());
  for (size_t c = 0; c < expected.size(); ++c) {
    SCOPED_TRACE(c);
    expect_equal(moments.channels()[c], Reference(expected[c]));
  }
  expect_equal(moments.total(), Reference(values));
}

TEST(ChannelMoments, along_any_axis) {
  for_each_simd_target([] {
    for (const bool with_nan : {false, true}) {
      for (const int64_t axis : {0, 1, 2, 3, -1, -4}) check_channels({5, 7, 9, 11}, axis, with_nan);
      check_channels({1, 1}, 0, with_nan);
      check_channels({1000}, 0, with_nan);
      check_channels({600, 33}, 1, with_nan);     // a strip of one column
      check_channels({5000, 3}, -1, with_nan);    // rows are folded, some left over
      check_channels({1500, 4, 9}, 1, with_nan);  // short runs
      check_channels({2, 3, 64, 2}, 1, with_nan);
    }
  });
  check_channels({3, 4 * kChunk + 5}, 0, true);  // long runs
  check_channels({1, 4 * kChunk + 5}, 1, false);
}

TEST(ChannelMoments, halves_merged_equal_the_whole) {
  const std::vector<float> values = normal(40 * 24, 1, 2);
  ChannelMoments whole, first, second;
  whole.update(values, std::vector<int64_t>{40, 24}, 1);
  first.update(std::span<const float>(values).first(10 * 24), std::vector<int64_t>{10, 24}, 1);
  second.update(std::span<const float>(values).subspan(10 * 24), std::vector<int64_t>{30, 24}, -1);
  first.merge(second);
  first.merge(ChannelMoments());
  for (size_t c = 0; c < 24; ++c) {
    EXPECT_EQ(first.channels()[c].min, whole.channels()[c].min);
    EXPECT_NEAR(first.channels()[c].mean, whole.channels()[c].mean, 1e-14);
    EXPECT_NEAR(first.channels()[c].m2, whole.channels()[c].m2, 1e-13 * whole.channels()[c].m2);
  }
}

TEST(ChannelMoments, bad_parameters_are_named) {
  const std::vector<float> values(24);
  const auto where = [&](const std::vector<int64_t>& shape, int64_t axis) {
    ChannelMoments moments;
    moments.update(values, std::vector<int64_t>{4, 6}, 1);
    try {
      moments.update(values, shape, axis);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
      return error.where();
    }
    return std::string("no error");
  };
  EXPECT_EQ(where({4, 6}, 2), "axis");
  EXPECT_EQ(where({4, 6}, -3), "axis");
  EXPECT_EQ(where({}, 0), "axis");
  EXPECT_EQ(where({4, 7}, 1), "in");
  EXPECT_EQ(where({-4, -6}, 1), "shape");
  EXPECT_EQ(where({6, 4}, 1), "shape");
  EXPECT_EQ(where({4, 6}, -1), "no error");
}

}  // namespace
}  // namespace kaon
