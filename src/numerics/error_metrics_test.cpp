#include "numerics/error_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "numerics/float_blocks.h"
#include "numerics/half.h"
#include "numerics/test_targets-inl.h"

namespace kaon {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::vector<float> normal(int64_t count, float mean, float stddev, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(mean, stddev);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = distribution(random);
  return values;
}

ErrorMetrics of(std::span<const float> x, std::span<const float> reference) {
  ErrorMetrics metrics;
  metrics.update(x, reference);
  return metrics;
}

void expect_by_definition(const ErrorMetrics& metrics, std::span<const float> x, std::span<const float> reference) {
  int64_t count = 0, skipped = 0, broken = 0;
  long double error = 0, squared = 0, relative = 0, rr = 0, xx = 0, xr = 0, magnitude = 0;
  double max = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(reference[i])) {
      ++skipped;
      broken += std::isfinite(reference[i]);
      continue;
    }
    ++count;
    const long double a = x[i], r = reference[i];
    error += a - r;
    magnitude += std::fabs(a - r);
    squared += (a - r) * (a - r);
    relative += std::fabs(a - r) / (std::fabs(r) + 1e-12L);
    rr += r * r;
    xx += a * a;
    xr += a * r;
    max = std::max(max, std::fabs(static_cast<double>(x[i]) - reference[i]));
  }
  EXPECT_EQ(metrics.count, count);
  EXPECT_EQ(metrics.skipped, skipped);
  EXPECT_EQ(metrics.broken, broken);
  if (count == 0) {
    for (const double value : {metrics.mse(), metrics.sqnr_db(), metrics.cosine(), metrics.max_abs(),
                               metrics.mean_error(), metrics.mean_relative_error()}) {
      EXPECT_TRUE(std::isnan(value));
    }
    return;
  }
  const auto near = [](double value, long double expected, long double size) {
    EXPECT_NEAR(value, static_cast<double>(expected), static_cast<double>(1e-13L * size));
  };
  EXPECT_EQ(metrics.max_abs(), max);
  near(metrics.mse(), squared / count, squared / count);
  near(metrics.mean_error(), error / count, magnitude / count);
  near(metrics.mean_relative_error(), relative / count, relative / count);
  near(metrics.sqnr_db(), 10 * std::log10(rr / squared), 10);
  near(metrics.cosine(), xr / std::sqrt(xx * rr), 1);
  near(metrics.reference_energy, rr, rr);
}

TEST(ErrorMetrics, equal_the_definitions_on_every_target) {
  const std::vector<float> reference = normal(kChunk + 3 * kBlock, 0.5f, 1, 1);
  const std::vector<float> x = normal(kChunk + 3 * kBlock, 0.4f, 1, 2);
  for_each_simd_target([&] {
    for (const int64_t length : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 34, 66, 130, 2047, 2048, 2049, 65536, 65537}) {
      for (const int64_t offset : {0, 1, 3}) {
        SCOPED_TRACE(testing::Message() << length << " from " << offset);
        const std::span<const float> a(x.data() + offset, static_cast<size_t>(length));
        const std::span<const float> r(reference.data() + offset + 1, static_cast<size_t>(length));
        expect_by_definition(of(a, r), a, r);
      }
    }
  });
}

TEST(ErrorMetrics, leave_out_what_is_not_finite) {
  for_each_simd_target([] {
    for (const int64_t length : {1, 3, 17, 5000}) {
      std::vector<float> x = normal(length, 0, 1, 3), r = normal(length, 0, 1, 4);
      for (size_t i = 0; i < x.size(); ++i) {
        if (i % 5 == 0) x[i] = kNan;
        if (i % 7 == 0) r[i] = kInf;
        if (i % 11 == 3) x[i] = r[i] = -kInf;
        if (i % 13 == 3) x[i] = kInf;
      }
      expect_by_definition(of(x, r), x, r);
    }
  });
}

TEST(ErrorMetrics, without_error_are_exact) {
  const std::vector<float> values = normal(3 * kBlock + 5, 1, 1e-3f, 5);
  for_each_simd_target([&] {
    const ErrorMetrics metrics = of(values, values);
    EXPECT_EQ(metrics.mse(), 0);
    EXPECT_EQ(metrics.sqnr_db(), kInfinite);
    EXPECT_EQ(metrics.cosine(), 1);
    EXPECT_EQ(metrics.mean_relative_error(), 0);
    EXPECT_EQ(metrics.max_abs(), 0);
  });
}

TEST(ErrorMetrics, of_zeros_are_defined) {
  const std::vector<float> zeros(20), ones(20, 1.0f);
  EXPECT_EQ(of(zeros, zeros).sqnr_db(), kInfinite);
  EXPECT_EQ(of(zeros, zeros).cosine(), 1);
  EXPECT_EQ(of(zeros, zeros).mean_relative_error(), 0);
  EXPECT_EQ(of(ones, zeros).sqnr_db(), -kInfinite);
  EXPECT_EQ(of(ones, zeros).cosine(), 0);
  EXPECT_DOUBLE_EQ(of(ones, zeros).mean_relative_error(), 1e12);
  EXPECT_EQ(of(zeros, ones).sqnr_db(), 0);
  EXPECT_EQ(of(zeros, ones).cosine(), 0);
  EXPECT_EQ(of(zeros, ones).mean_error(), -1);
  std::vector<float> minus(ones);
  for (float& value : minus) value = -value;
  EXPECT_EQ(of(minus, ones).cosine(), -1);
}

TEST(ErrorMetrics, take_the_largest_and_smallest_numbers) {
  const float max = std::numeric_limits<float>::max();
  for_each_simd_target([&] {
    for (const float size : {max, 1e-44f}) {
      const std::vector<float> x{size, -size, size, size, size}, r{-size, size, size, 0, -size};
      expect_by_definition(of(x, r), x, r);
    }
  });
}

TEST(ErrorMetrics, halves_merged_equal_the_whole_on_any_number_of_threads) {
  std::vector<float> reference = normal(5 * kChunk + 99, 0, 1, 6), x = normal(5 * kChunk + 99, 0, 1, 7);
  x[5] = kNan;
  const int before = thread_count();
  set_thread_count(1);
  const ErrorMetrics whole = of(x, reference);
  for (const int threads : {2, 3, 7}) {
    set_thread_count(threads);
    EXPECT_EQ(of(x, reference), whole);
  }
  set_thread_count(before);
  for (const size_t cut : {size_t{0}, size_t{1}, x.size() / 2, x.size()}) {
    ErrorMetrics merged = of(std::span<const float>(x).first(cut), std::span<const float>(reference).first(cut));
    merged.merge(of(std::span<const float>(x).subspan(cut), std::span<const float>(reference).subspan(cut)));
    expect_by_definition(merged, x, reference);
  }
}

TEST(ErrorMetrics, compare_different_types) {
  const std::vector<float> reference = normal(1000, 0, 1, 8);
  std::vector<uint16_t> halves(reference.size());
  std::vector<float> converted(reference.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = float32_to_bfloat16(reference[i]);
    converted[i] = bfloat16_to_float32(halves[i]);
  }
  ErrorMetrics metrics;
  metrics.update({halves.data(), std::ssize(halves), FloatView::Type::BFloat16}, reference);
  EXPECT_EQ(metrics, of(converted, reference));
  EXPECT_GT(metrics.sqnr_db(), 40);
}

TEST(ErrorMetrics, bad_parameters_are_named) {
  try {
    of(std::vector<float>(3), std::vector<float>(4));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
    EXPECT_EQ(error.where(), "x");
  }
}

}  // namespace
}  // namespace kaon
