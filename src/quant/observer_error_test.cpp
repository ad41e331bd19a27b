#include "quant/observer_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/faked_test.h"

namespace kaon {
namespace {

double measured(const std::vector<float>& values, const TensorSpec& spec, ScaleZero params) {
  return faked_error(values, spec, params).sum_squared_error;
}

struct Case {
  std::string format;
  bool symmetric;
};

class ErrorModelTest : public testing::TestWithParam<Case> {
 protected:
  TensorSpec spec() const {
    TensorSpec spec;
    spec.format = GetParam().format;
    spec.symmetric = GetParam().symmetric;
    return spec;
  }
};

TEST_P(ErrorModelTest, FollowsTheMeasuredError) {
  std::mt19937 random(3);
  std::normal_distribution<float> distribution(0.3F, 1);
  std::vector<float> values(200000);
  for (float& x : values) x = distribution(random);
  Histogram histogram;
  histogram.update(values);
  const ErrorModel error(histogram, spec());
  for (const float bound : {0.5F, 1.0F, 2.0F, 3.0F, 5.0F}) {
    const ScaleZero params = choose_scale({-0.8F * bound, bound}, format(GetParam().format),
                                          GetParam().symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric);
    const double expected = measured(values, spec(), params);
    EXPECT_NEAR(error(params), expected, 0.02 * expected) << bound;
  }
}

TEST_P(ErrorModelTest, IsExactForEqualValues) {
  const std::vector<float> values(10, 0.37F);
  Histogram histogram;
  histogram.update(values);
  const ErrorModel error(histogram, spec());
  for (const float bound : {0.1F, 0.37F, 1.0F, 9.0F}) {
    const ScaleZero params = choose_scale({-0.5F * bound, bound}, format(GetParam().format),
                                          GetParam().symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric);
    const double expected = measured(values, spec(), params);
    // The measured values are rounded to float32, by up to 2^-25.
    EXPECT_NEAR(error(params), expected, 2 * std::sqrt(10 * expected) * 0x1p-25 + 1e-13) << bound;
  }
}

TEST_P(ErrorModelTest, PenaltyCountsOnlyWhatIsClipped) {
  std::vector<float> values;
  for (int i = -1000; i <= 1000; ++i) values.push_back(static_cast<float>(i) / 1000);
  Histogram histogram;
  histogram.update(values);
  const Format& f = format(GetParam().format);
  const Symmetry symmetry = GetParam().symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric;
  const ErrorModel plain(histogram, spec());
  const ErrorModel strict(histogram, spec(), 10);
  const ScaleZero wide = choose_scale({-1, 1}, f, symmetry);
  EXPECT_NEAR(strict(wide), plain(wide), 1e-3 * plain(wide));
  const ScaleZero narrow = choose_scale({-0.25F, 0.25F}, f, symmetry);
  EXPECT_GT(strict(narrow), 9 * plain(narrow));
}

INSTANTIATE_TEST_SUITE_P(Formats, ErrorModelTest,
                         testing::Values(Case{"int8", true}, Case{"uint8", false}, Case{"uint8", true},
                                         Case{"int4", true}, Case{"uint4", false}, Case{"int16", true},
                                         Case{"fp8_e4m3", true}, Case{"fp8_e5m2", true}, Case{"fp8_e4m3fnuz", true},
                                         Case{"fp6_e3m2", true}, Case{"fp4_e2m1", true}),
                         [](const auto& param) {
                           return param.param.format + (param.param.symmetric ? "_symmetric" : "_asymmetric");
                         });

}  // namespace
}  // namespace kaon
