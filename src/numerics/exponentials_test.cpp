#include "numerics/exponentials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "numerics/test_targets-inl.h"

namespace kaon {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> numbers(int64_t count, float spread) {
  std::mt19937 generator(static_cast<uint32_t>(count));
  std::normal_distribution<float> normal(1, spread);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

TEST(Exponentials, AreWithinTwoUlpAtAnyLength) {
  for_each_simd_target([] {
    for (const int64_t count : {1, 2, 7, 8, 15, 16, 17, 31, 33, 100, 1000}) {
      const std::vector<float> x = numbers(count, 12);
      const float top = *std::max_element(x.begin(), x.end());
      ASSERT_EQ(row_maximum(x.data(), count), top);
      std::vector<float> y(x.size() + 1, 7);
      const float sum = exponentials(x.data(), y.data(), count, top);
      double exact_sum = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = std::exp(static_cast<double>(x[i] - top));
        exact_sum += exact;
        ASSERT_NEAR(y[i], exact, exact * 2.4e-7 + 1e-44) << x[i] - top;
      }
      EXPECT_EQ(y.back(), 7);
      EXPECT_NEAR(sum, exact_sum, exact_sum * 1e-6);
      std::vector<float> in_place = x;
      EXPECT_EQ(exponentials(in_place.data(), in_place.data(), count, top), sum);
      EXPECT_TRUE(std::equal(in_place.begin(), in_place.end(), y.begin()));
      double log_sum = 0;
      for (const float value : x) log_sum += std::exp(static_cast<double>(value) - top);
      EXPECT_NEAR(log_sum_exp(x), top + std::log(log_sum), 1e-6);
    }
  });
}

TEST(Exponentials, SaySoWhereANumberIsNone) {
  for_each_simd_target([] {
    for (const int64_t count : {1, 5, 16, 40}) {
      for (int64_t at = 0; at < count; ++at) {
        std::vector<float> x = numbers(count, 1);
        x[static_cast<size_t>(at)] = kNaN;
        EXPECT_TRUE(std::isnan(row_maximum(x.data(), count)));
        EXPECT_TRUE(std::isnan(log_sum_exp(x)));
        x[static_cast<size_t>(at)] = kInf;
        EXPECT_EQ(log_sum_exp(x), kInf);
        x[static_cast<size_t>(at)] = -kInf;
        EXPECT_EQ(std::isinf(log_sum_exp(x)), count == 1);
        std::vector<float> y(x.size());
        exponentials(x.data(), y.data(), count, 0);
        EXPECT_EQ(y[static_cast<size_t>(at)], 0);
      }
    }
  });
}

}  // namespace
}  // namespace kaon
