#include "numerics/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/half.h"
#include "numerics/statistics_test_data.h"
#include "numerics/test_targets-inl.h"

namespace kaon {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();

Histogram of(std::span<const float> values, int64_t bins = 2048) {
  Histogram histogram(bins);
  histogram.update(values);
  return histogram;
}

/// The bin of a value by its definition, from the width alone.
int64_t bin_at(float value, double width) {
  const double magnitude = std::floor(std::fabs(static_cast<double>(value)) / width);
  return static_cast<int64_t>(value < 0 ? -1 - magnitude : magnitude);
}

/// Counts one value at a time, and tries every width from the narrowest.
void expect_by_definition(const Histogram& histogram, std::span<const float> values) {
  int64_t count = 0;
  NonFinite others;
  float min = kInf, max = -kInf;
  for (const float value : values) {
    others.nan += std::isnan(value);
    others.pos_inf += value == kInf;
    others.neg_inf += value == -kInf;
    if (!std::isfinite(value)) continue;
    ++count;
    min = std::min(min, value);
    max = std::max(max, value);
  }
  EXPECT_EQ(histogram.count(), count);
  EXPECT_EQ(histogram.non_finite(), others);
  EXPECT_EQ(histogram.min(), min);
  EXPECT_EQ(histogram.max(), max);
  if (count == 0) {
    EXPECT_TRUE(histogram.counts().empty());
    return;
  }

  const double largest = std::max(std::fabs(min), std::fabs(max));
  double width = std::ldexp(1.0, -126);
  while (width * 0x1p24 <= largest || bin_at(max, width) - bin_at(min, width) >= histogram.bins()) width *= 2;
  ASSERT_EQ(histogram.width(), width);
  std::map<int64_t, int64_t> expected;
  for (const float value : values) {
    if (std::isfinite(value)) ++expected[bin_at(value, width)];
  }
  ASSERT_EQ(histogram.first_bin(), expected.begin()->first);
  ASSERT_EQ(std::ssize(histogram.counts()), expected.rbegin()->first - expected.begin()->first + 1);
  for (int64_t i = 0; i < std::ssize(histogram.counts()); ++i) {
    const auto found = expected.find(histogram.first_bin() + i);
    ASSERT_EQ(histogram.counts()[static_cast<size_t>(i)], found == expected.end() ? 0 : found->second) << i;
  }
}

TEST(Histogram, counts_by_definition_on_every_target) {
  const std::vector<float> values = normal(kChunk + 2 * kBlock, 0.3f, 2.0f);
  for_each_simd_target([&] {
    for (const int64_t length : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 34, 66, 130, 511, 512, 513, 2047, 2048, 2049}) {
      for (const int64_t offset : {0, 1, 3}) {
        SCOPED_TRACE(testing::Message() << length << " from " << offset);
        const std::span<const float> part(values.data() + offset, static_cast<size_t>(length));
        expect_by_definition(of(part), part);
      }
    }
    expect_by_definition(of(values), values);
  });
}

TEST(Histogram, takes_every_kind_of_number) {
  const std::vector<std::vector<float>> sets{
      {0.0f, -0.0f},
      {5e-45f, -5e-45f, 1e-39f},
      {kMax, -kMax, 1e-30f, -1e-30f, 0},  // a tiny negative value stays in the negative bin
      {kMax, kMax},
      {1000.0f, 1000.0001f, 1000.001f},
      {-3, -2, -1},
      {1, 2, 4, 8, -1, -2, -4, -8},
      {kNan, 1, kInf, 2, -kInf, kNan},
      {kNan, kNan},
      {1e-38f, 1e38f},
  };
  for_each_simd_target([&] {
    for (const std::vector<float>& set : sets) {
      std::vector<float> values;
      for (int i = 0; i < 200; ++i) values.insert(values.end(), set.begin(), set.end());
      SCOPED_TRACE(testing::PrintToString(set));
      for (const int64_t bins : {16, 17, 2048, 65536}) expect_by_definition(of(values, bins), values);
    }
  });
}

TEST(Histogram, widens_without_losing_a_count) {
  std::vector<float> all;
  Histogram histogram(64);
  for (int step = -140; step <= 120; step += 5) {
    std::vector<float> values = normal(300, 0, std::ldexp(1.0f, step), static_cast<unsigned>(step + 1000));
    histogram.update(values);
    all.insert(all.end(), values.begin(), values.end());
    ASSERT_EQ(std::accumulate(histogram.counts().begin(), histogram.counts().end(), int64_t{0}), std::ssize(all));
    expect_by_definition(histogram, all);
  }
}

TEST(Histogram, uses_at_least_half_of_its_bins) {
  for (const float spread : {0.7f, 1.0f, 1.001f, 1.3f, 1.999f}) {
    for (const float offset : {-1.0f, -0.5f, 0.0f, 0.3f}) {
      const std::vector<float> values{offset * spread, (offset + 1) * spread};
      const Histogram histogram = of(values);
      EXPECT_GE(histogram.counts().size(), 1024u);
      EXPECT_LE(histogram.counts().size(), 2048u);
    }
  }
}

TEST(Histogram, does_not_depend_on_order_cuts_or_threads) {
  std::vector<float> values = normal(5 * kChunk + 321, 0.1f, 1.0f);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::ldexp(1.0f, static_cast<int>(i / 5000));  // grows
  values[10] = kNan;
  values[kChunk + 10] = kInf;
  const int before = thread_count();
  set_thread_count(1);
  const Histogram whole = of(values);
  for (const int threads : {2, 3, 7}) {
    set_thread_count(threads);
    EXPECT_EQ(of(values), whole);
  }
  set_thread_count(before);

  std::mt19937 random(3);
  for (int trial = 0; trial < 10; ++trial) {
    std::vector<Histogram> parts;
    for (size_t at = 0; at < values.size();) {
      const size_t length = std::min(values.size() - at, size_t{1} + random() % 90000);
      parts.push_back(of(std::span<const float>(values).subspan(at, length)));
      at += length;
    }
    std::shuffle(parts.begin(), parts.end(), random);
    Histogram merged;
    for (const Histogram& part : parts) merged.merge(part);
    EXPECT_EQ(merged, whole);
  }
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(of(values), whole);
}

TEST(Histogram, one_bin_may_hold_everything) {
  const std::vector<float> zeros(int64_t{20} * kChunk + 3, 0.0f);
  for_each_simd_target([&] {
    const Histogram histogram = of(zeros);
    ASSERT_EQ(histogram.counts().size(), 1u);
    EXPECT_EQ(histogram.counts()[0], std::ssize(zeros));
  });
  // One finite value in each block: all of them come first in their block.
  std::vector<float> sparse(static_cast<size_t>(kBlock * 70000 / 64), kNan);
  Histogram histogram;
  for (size_t i = 0; i < sparse.size(); i += kBlock) sparse[i] = 2.5f;
  for (int i = 0; i < 64; ++i) histogram.update(sparse);
  EXPECT_EQ(histogram.counts()[0], histogram.count());
  EXPECT_EQ(histogram.count() + histogram.non_finite().nan, std::ssize(sparse) * 64);
}

TEST(Histogram, mirrored_data_give_mirrored_bins) {
  std::vector<float> values = normal(10000, 0.2f, 1);
  values.push_back(0.5f);  // on an edge
  std::vector<float> mirrored(values);
  for (float& value : mirrored) value = -value;
  const Histogram a = of(values), b = of(mirrored);
  EXPECT_TRUE(std::equal(a.counts().begin(), a.counts().end(), b.counts().rbegin(), b.counts().rend()));
  EXPECT_EQ(a.edge(0), -b.edge(std::ssize(b.counts())));
}

TEST(Histogram, absolute_is_the_histogram_of_magnitudes) {
  for (const float mean : {-100.0f, -1.0f, 0.0f, 1.0f, 100.0f}) {
    std::vector<float> values = normal(20000, mean, 1);
    const Histogram histogram = of(values);
    for (float& value : values) value = std::fabs(value);
    const Histogram::Bins bins = histogram.absolute();
    std::vector<int64_t> expected(bins.counts.size());
    for (const float value : values) {
      const int64_t at = bin_at(value, histogram.width()) - bins.first;
      ASSERT_TRUE(at >= 0 && at < std::ssize(expected));
      ++expected[static_cast<size_t>(at)];
    }
    EXPECT_EQ(bins.counts, expected);
    EXPECT_GT(expected.back(), 0);
    std::sort(values.begin(), values.end());
    for (const double q : {0.01, 0.5, 0.99, 0.999}) {
      const float exact = values[static_cast<size_t>(q * 20000)];
      EXPECT_NEAR(histogram.absolute_quantile(q), exact, 2 * histogram.width());
    }
    EXPECT_EQ(histogram.absolute_quantile(1), histogram.absmax());
  }
  EXPECT_TRUE(Histogram().absolute().counts.empty());
}

TEST(Histogram, quantiles_are_within_a_bin_of_the_sorted_data) {
  std::vector<float> values = normal(50000, -3, 2);
  const Histogram histogram = of(values);
  std::sort(values.begin(), values.end());
  double last = -kInf;
  for (const double q : {0.0, 1e-4, 0.01, 0.25, 0.5, 0.9, 0.99, 0.9999, 1.0}) {
    const float exact = values[std::min<size_t>(values.size() - 1, static_cast<size_t>(q * 50000))];
    const double quantile = histogram.quantile(q);
    EXPECT_NEAR(quantile, exact, q > 0.001 && q < 0.999 ? histogram.width() : 0.1) << q;
    EXPECT_GE(quantile, last);
    last = quantile;
  }
  EXPECT_EQ(histogram.quantile(0), values.front());
  EXPECT_EQ(histogram.quantile(1), values.back());
  EXPECT_EQ(of(std::vector<float>{7, 7, 7}).quantile(0.3), 7);
  EXPECT_EQ(Histogram().quantile(0.5), 0);
  EXPECT_EQ(Histogram().absolute_quantile(0.5), 0);
  EXPECT_THROW(histogram.quantile(1.01), Error);
  EXPECT_THROW(histogram.quantile(kNan), Error);
}

TEST(Histogram, edges_enclose_the_data) {
  const Histogram histogram = of(normal(1000, 1, 3));
  const std::vector<double> edges = histogram.edges();
  ASSERT_EQ(edges.size(), histogram.counts().size() + 1);
  EXPECT_LE(edges.front(), histogram.min());
  EXPECT_GT(edges[1], histogram.min());
  EXPECT_GT(edges.back(), histogram.max());
  EXPECT_LE(edges[edges.size() - 2], histogram.max());
  for (size_t i = 0; i + 1 < edges.size(); ++i) ASSERT_EQ(edges[i + 1] - edges[i], histogram.width());
}

TEST(Histogram, of_half_precision_is_that_of_the_converted) {
  const std::vector<float> values = normal(10001, 0, 1);
  std::vector<uint16_t> halves(values.size()), bfloats(values.size());
  std::vector<float> from_half(values.size()), from_bfloat(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    halves[i] = float32_to_float16(values[i]);
    bfloats[i] = float32_to_bfloat16(values[i]);
    from_half[i] = float16_to_float32(halves[i]);
    from_bfloat[i] = bfloat16_to_float32(bfloats[i]);
  }
  Histogram a, b;
  a.update({halves.data(), std::ssize(halves), FloatView::Type::Float16});
  b.update({bfloats.data(), std::ssize(bfloats), FloatView::Type::BFloat16});
  EXPECT_EQ(a, of(from_half));
  EXPECT_EQ(b, of(from_bfloat));
}

TEST(Histogram, bad_parameters_are_named) {
  for (const int64_t bins : {-1, 0, 15, 65537}) {
    try {
      Histogram histogram(bins);
      ADD_FAILURE() << bins;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
      EXPECT_EQ(error.where(), "bins");
    }
  }
  Histogram histogram(64);
  EXPECT_THROW(histogram.merge(Histogram(128)), Error);
  EXPECT_THROW(histogram.update({nullptr, 1, FloatView::Type::Float32}), Error);
}

}  // namespace
}  // namespace kaon
