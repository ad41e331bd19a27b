#include "quant/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>

#include "base/memory_usage.h"
#include "base/parallel.h"
#include "quant/faked_test.h"
#include "quant/observer_range.h"

namespace kaon {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> normal(int64_t count, float mean = 0, float deviation = 1, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(mean, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = distribution(random);
  return values;
}

std::vector<float> relu(std::vector<float> values) {
  for (float& x : values) x = std::max(x, 0.0F);
  return values;
}

std::vector<float> with_outlier(std::vector<float> values, float outlier) {
  values[values.size() / 2] = outlier;
  return values;
}

struct Sample {
  std::string name;
  std::vector<float> values;
};

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = {{"empty", {}},
                                          {"one", {2.5F}},
                                          {"one negative", {-2.5F}},
                                          {"two", {-1, 3}},
                                          {"constant", std::vector<float>(1000, 0.7F)},
                                          {"zeros", std::vector<float>(100, 0.0F)},
                                          {"minus zeros", std::vector<float>(100, -0.0F)},
                                          {"all NaN", std::vector<float>(100, kNan)},
                                          {"all Inf", {kInf, -kInf}},
                                          {"some NaN and Inf", {1, kNan, -2, kInf, 0.5F, -kInf, 1.5F}},
                                          {"subnormal", {1e-40F, -3e-41F, 2e-39F}},
                                          {"huge", {FLT_MAX, -FLT_MAX, 1}},
                                          {"normal", normal(20000)},
                                          {"relu", relu(normal(20000))},
                                          {"negative", normal(20000, -20)},
                                          {"far from zero", normal(20000, 1000)},
                                          {"outlier", with_outlier(normal(20000), 100)},
                                          {"skewed", with_outlier(relu(normal(20000, 0.2F)), -3)}};
  return all;
}

std::vector<TensorSpec> specs() {
  std::vector<TensorSpec> all;
  for (const char* name : {"int8", "uint8", "int4", "uint4", "int2", "int16", "uint16", "int32", "fp8_e4m3", "fp8_e5m2",
                           "fp8_e4m3fnuz", "fp4_e2m1", "fp6_e2m3", "float16"}) {
    for (const bool symmetric : {true, false}) {
      TensorSpec spec;
      spec.format = name;
      spec.symmetric = symmetric;
      all.push_back(spec);
    }
  }
  TensorSpec stored = all.front();
  stored.scale_type = ScaleType::Float16;
  all.push_back(stored);
  stored.scale_type = ScaleType::PowerOfTwo;
  all.push_back(stored);
  return all;
}

struct Learned {
  Range range;
  ScaleZero scale;
  Range seen;
};

Learned learn(const std::string& observer, const TensorSpec& spec, const std::vector<std::vector<float>>& batches,
              const std::map<std::string, double>& options = {}) {
  const auto learned = make_observer({observer, options}, spec, "test");
  for (const std::vector<float>& batch : batches) {
    learned->update(batch);
    learned->end_batch();
  }
  return {learned->range(), learned->scale(), learned->seen()};
}

double sqnr(const std::vector<float>& values, const TensorSpec& spec, ScaleZero params) {
  return faked_error(values, spec, params).sqnr_db();
}

class EveryObserver : public testing::TestWithParam<std::string> {
 protected:
  template <class Body>
  void for_each_case(const Body& body) {
    for (const TensorSpec& spec : specs()) {
      for (const Sample& sample : samples()) {
        SCOPED_TRACE(GetParam() + ", " + spec.format + (spec.symmetric ? " symmetric, " : " asymmetric, ") +
                     sample.name);
        body(spec, sample.values);
      }
    }
  }
};

TEST_P(EveryObserver, RangeIsFiniteHoldsZeroAndLiesWithinWhatWasSeen) {
  for_each_case([&](const TensorSpec& spec, const std::vector<float>& values) {
    const Learned learned = learn(GetParam(), spec, {values});
    const Range all = with_zero(learned.seen);
    EXPECT_TRUE(std::isfinite(learned.range.min) && std::isfinite(learned.range.max));
    EXPECT_LE(learned.range.min, 0);
    EXPECT_GE(learned.range.max, 0);
    EXPECT_GE(learned.range.min, all.min);
    EXPECT_LE(learned.range.max, all.max);
    // Something is left of it.
    EXPECT_EQ(learned.range.min < learned.range.max, all.min < all.max);
  });
}

TEST_P(EveryObserver, ScaleCanBeUsed) {
  for_each_case([&](const TensorSpec& spec, const std::vector<float>& values) {
    const ScaleZero scale = learn(GetParam(), spec, {values}).scale;
    EXPECT_TRUE(std::isfinite(scale.scale) && scale.scale > 0) << scale.scale;
    const Format& f = format(spec.format);
    if (f.kind == FormatKind::Integer) {
      EXPECT_GE(scale.zero_point, f.integer_min());
      EXPECT_LE(scale.zero_point, f.integer_max());
      if (spec.symmetric) {
        EXPECT_EQ(scale.zero_point, f.is_signed ? 0 : f.integer_max() / 2 + 1);
      }
    } else {
      EXPECT_EQ(scale.zero_point, 0);
    }
    const bool power_of_two = GetParam().starts_with("power_of_two");
    EXPECT_EQ(round_scale(scale.scale, power_of_two ? ScaleType::PowerOfTwo : spec.scale_type), scale.scale);
    EXPECT_TRUE(!is_cast(f) || scale.scale == 1);
  });
}

TEST_P(EveryObserver, SeenIsTheRangeOfTheFiniteValues) {
  for_each_case([&](const TensorSpec& spec, const std::vector<float>& values) {
    const Range seen = learn(GetParam(), spec, {values}).seen;
    Range expected{kInf, -kInf};
    for (const float x : values) {
      if (std::isfinite(x)) expected = {std::min(expected.min, x), std::max(expected.max, x)};
    }
    if (expected.min > expected.max) expected = {};
    EXPECT_EQ(seen.min, expected.min);
    EXPECT_EQ(seen.max, expected.max);
  });
}

TEST_P(EveryObserver, DoesNotDependOnOrderCutOrThreads) {
  const int threads = thread_count();
  for_each_case([&](const TensorSpec& spec, const std::vector<float>& values) {
    const Learned whole = learn(GetParam(), spec, {values});
    std::vector<float> shuffled = values;
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(7));
    std::vector<std::vector<std::vector<float>>> streams = {{values}, {shuffled}};
    if (GetParam() != "moving_average") {
      const auto third = shuffled.begin() + std::ssize(shuffled) / 3;
      streams.push_back({{shuffled.begin(), third}, {}, {third, shuffled.end()}, {kNan}});
    }
    for (const int used : {1, 3}) {
      set_thread_count(used);
      for (const auto& stream : streams) {
        const Learned other = learn(GetParam(), spec, stream);
        // A sum of float64 may differ in its last bit (lsq).
        EXPECT_FLOAT_EQ(other.scale.scale, whole.scale.scale);
        EXPECT_EQ(other.scale.zero_point, whole.scale.zero_point);
        EXPECT_FLOAT_EQ(other.range.min, whole.range.min);
        EXPECT_FLOAT_EQ(other.range.max, whole.range.max);
      }
    }
    set_thread_count(threads);
  });
}

TEST_P(EveryObserver, NothingSeenGivesNothingToCover) {
  const Learned learned = learn(GetParam(), TensorSpec{}, {});
  EXPECT_EQ(learned.range.min, 0);
  EXPECT_EQ(learned.range.max, 0);
  EXPECT_EQ(learned.scale.scale, 1);
}

TEST_P(EveryObserver, MemoryStaysFlat) {
  const auto observer = make_observer({GetParam(), {}}, TensorSpec{}, "test");
  std::vector<float> batch = normal(1 << 16);
  const auto feed = [&](int times) {
    for (int i = 0; i < times; ++i) {
      for (float& x : batch) x *= 1.0001F;
      observer->update(batch);
      observer->end_batch();
    }
  };
  feed(20);
  const double before = peak_memory_mb();
  feed(150);
  EXPECT_LT(peak_memory_mb() - before, 2);
}

TEST_P(EveryObserver, DefaultsLieWithinTheirBounds) {
  const ObserverKind& kind = observers().get(GetParam());
  EXPECT_FALSE(kind.summary.empty());
  for (const Option& option : kind.options) {
    EXPECT_FALSE(option.help.empty()) << option.name;
    for (const double value : {option.value, option.min, option.max}) {
      EXPECT_NO_THROW(make_observer({GetParam(), {{option.name, value}}}, TensorSpec{}, "test")) << option.name;
    }
    for (const double bad : {option.min - 1, option.max + 1, static_cast<double>(kNan)}) {
      EXPECT_THROW(make_observer({GetParam(), {{option.name, bad}}}, TensorSpec{}, "test"), Error) << option.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Observers, EveryObserver, testing::ValuesIn(observers().names()),
                         [](const auto& param) { return param.param; });

TensorSpec spec_of(const std::string& format, bool symmetric) {
  TensorSpec spec;
  spec.format = format;
  spec.symmetric = symmetric;
  return spec;
}

TEST(ObserverTest, AllAreThere) {
  for (const char* name : {"min_max", "moving_average", "percentile", "mse", "entropy", "sqnr", "power_of_two_min_max",
                           "power_of_two_mse", "lsq"}) {
    EXPECT_NE(observers().find(name), nullptr) << name;
  }
}

TEST(ObserverTest, UnknownNamesAndOptionsSayWhatIsKnown) {
  const auto message = [](const ObserverConfig& config) -> std::string {
    try {
      make_observer(config, TensorSpec{}, "layers.conv1.input");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::InvalidConfig);
      EXPECT_EQ(error.where(), "layers.conv1.input");
      return error.message();
    }
    return "nothing was thrown";
  };
  EXPECT_NE(message({"minmax", {}}).find("min_max, moving_average"), std::string::npos);
  EXPECT_NE(message({"percentile", {{"precentile", 99}}}).find("it has percentile, bins"), std::string::npos);
  EXPECT_NE(message({"min_max", {{"bins", 99}}}).find("it has none"), std::string::npos);
  EXPECT_NE(message({"percentile", {{"percentile", 101}}}).find("from 50 to 100"), std::string::npos);
  EXPECT_NE(message({"mse", {{"bins", 100.5}}}).find("a whole number"), std::string::npos);
}

TEST(MinMaxTest, CoversAll) {
  const Learned learned = learn("min_max", spec_of("uint8", false), {{-1, 0.5F}, {3, 2}});
  EXPECT_EQ(learned.range.min, -1);
  EXPECT_EQ(learned.range.max, 3);
  EXPECT_FLOAT_EQ(learned.scale.scale, 4.0F / 255);
  EXPECT_EQ(learned.scale.zero_point, 64);
}

TEST(MinMaxTest, AnAllNanBatchDoesNotCountAsZero) {
  EXPECT_EQ(learn("min_max", TensorSpec{}, {{5, 6}, {kNan, kNan}}).seen.min, 5);
  EXPECT_EQ(learn("min_max", TensorSpec{}, {{5, 6}, {kNan, 0}}).seen.min, 0);
}

TEST(MovingAverageTest, MovesByItsMomentum) {
  const Learned learned =
      learn("moving_average", TensorSpec{}, {{-1, 1}, {-2, 5}, {kNan}, {-2, 1}}, {{"momentum", 0.25}});
  EXPECT_FLOAT_EQ(learned.range.min, -1.4375F);  // -1 → -1.25 → -1.4375
  EXPECT_FLOAT_EQ(learned.range.max, 1.75F);     // 1 → 2 → 1.75
  EXPECT_EQ(learned.seen.max, 5);
}

TEST(PercentileTest, LeavesOutTheLargestMagnitudes) {
  std::vector<float> values;
  for (int i = 1; i <= 10000; ++i) values.push_back(static_cast<float>(i));
  Learned learned = learn("percentile", spec_of("uint8", false), {values}, {{"percentile", 99}});
  EXPECT_EQ(learned.range.min, 0);
  EXPECT_NEAR(learned.range.max, 9900, 10);
  for (float& x : values) x = -x;
  learned = learn("percentile", spec_of("uint8", false), {values}, {{"percentile", 99}});
  EXPECT_NEAR(learned.range.min, -9900, 10);
  EXPECT_EQ(learned.range.max, 0);
  values.push_back(50);
  learned = learn("percentile", spec_of("int8", true), {values}, {{"percentile", 99}});
  EXPECT_NEAR(learned.scale.scale, 9900.0 / 127, 0.1);
  EXPECT_EQ(learned.range.max, 50);
}

TEST(PercentileTest, AHundredCoversAll) {
  const Learned learned = learn("percentile", spec_of("uint8", false), {{-1, 7}}, {{"percentile", 100}});
  EXPECT_EQ(learned.range.min, -1);
  EXPECT_EQ(learned.range.max, 7);
}

TEST(PercentileTest, FewValuesAreAllKept) {
  // Clipping by less than half a step is none.
  const Learned learned = learn("percentile", spec_of("uint8", false), {{-1, 0.3F, 4}});
  EXPECT_GT(learned.range.max, 4 - 4.0F / 255 / 2);
  EXPECT_EQ(learned.range.min, -1);
}

/// The best that any range can do, by brute force.
double best_sqnr(const std::vector<float>& values, const TensorSpec& spec) {
  constexpr int kSteps = 60;
  const Range all = with_zero(learn("min_max", spec, {values}).seen);
  double best = -INFINITY;
  for (int low = 1; low <= kSteps; ++low) {
    for (int high = 1; high <= kSteps; ++high) {
      if (spec.symmetric && low != high) continue;
      const Range range{all.min * static_cast<float>(low) / kSteps, all.max * static_cast<float>(high) / kSteps};
      best = std::max(best, sqnr(values, spec, choose_scale(range, format(spec.format), symmetry_of(spec))));
    }
  }
  return best;
}

TEST(MseTest, IsAsGoodAsBruteForce) {
  for (const Sample& sample : samples()) {
    if (sample.values.size() < 20000) continue;
    for (const auto& [name, symmetric] : std::vector<std::pair<std::string, bool>>{{"int8", true},
                                                                                   {"uint8", false},
                                                                                   {"int4", true},
                                                                                   {"uint4", false},
                                                                                   {"int2", true},
                                                                                   {"uint2", false},
                                                                                   {"fp8_e4m3", true},
                                                                                   {"fp4_e2m1", true}}) {
      const TensorSpec spec = spec_of(name, symmetric);
      const std::vector<float> few(sample.values.begin() + 9000, sample.values.begin() + 11000);
      const double ours = sqnr(few, spec, learn("mse", spec, {few}).scale);
      EXPECT_GT(ours, best_sqnr(few, spec) - 0.1) << name << " " << sample.name;
    }
  }
}

TEST(MseTest, ClipsAnOutlierForFourBits) {
  const std::vector<float> values = with_outlier(normal(20000), 30);
  const Learned learned = learn("mse", spec_of("int4", true), {values});
  EXPECT_LT(learned.range.max, 12);
  EXPECT_GT(learned.range.max, 2);
}

TEST(SqnrTest, PenaltyWidensTheRange) {
  const std::vector<float> values = normal(20000);
  const TensorSpec spec = spec_of("int4", true);
  const float light = learn("sqnr", spec, {values}, {{"clip_penalty", 1}}).range.max;
  EXPECT_EQ(light, learn("mse", spec, {values}).range.max);
  const float usual = learn("sqnr", spec, {values}).range.max;
  const float heavy = learn("sqnr", spec, {values}, {{"clip_penalty", 100}}).range.max;
  EXPECT_GT(usual, light);
  EXPECT_GT(heavy, usual);
}

TEST(EntropyTest, IsNeverWorseThanMinMax) {
  for (const Sample& sample : samples()) {
    if (sample.values.size() < 20000) continue;
    for (const TensorSpec& spec : {spec_of("uint8", false), spec_of("int8", true), spec_of("int4", true)}) {
      const double ours = sqnr(sample.values, spec, learn("entropy", spec, {sample.values}).scale);
      const double all = sqnr(sample.values, spec, learn("min_max", spec, {sample.values}).scale);
      EXPECT_GT(ours, all - 0.1) << spec.format << " " << sample.name;
    }
  }
}

TEST(EntropyTest, LeavesRareValuesOut) {
  const std::vector<float> values = normal(1000000);
  const Learned learned = learn("entropy", spec_of("int4", true), {values});
  EXPECT_LT(learned.range.max, 0.9F * learned.seen.max);
  EXPECT_GT(learned.range.max, 2);
}

TEST(PowerOfTwoTest, ScalesArePowersOfTwo) {
  for (const char* name : {"power_of_two_min_max", "power_of_two_mse"}) {
    for (const Sample& sample : samples()) {
      for (const TensorSpec& spec : specs()) {
        if (spec.scale_type != ScaleType::Float32) continue;
        int exponent = 0;
        EXPECT_EQ(std::frexp(learn(name, spec, {sample.values}).scale.scale, &exponent), 0.5F)
            << name << " " << spec.format << " " << sample.name;
      }
    }
  }
}

TEST(PowerOfTwoTest, MseIsNeverWorseThanMinMax) {
  for (const Sample& sample : samples()) {
    if (sample.values.size() < 20000) continue;
    for (const TensorSpec& spec : {spec_of("uint8", false), spec_of("int8", true), spec_of("int4", true),
                                   spec_of("uint4", false), spec_of("fp8_e4m3", true)}) {
      const double ours = sqnr(sample.values, spec, learn("power_of_two_mse", spec, {sample.values}).scale);
      const double all = sqnr(sample.values, spec, learn("power_of_two_min_max", spec, {sample.values}).scale);
      EXPECT_GT(ours, all - 0.1) << spec.format << " " << sample.name;
    }
  }
}

TEST(LsqTest, ScaleIsTwiceTheMeanMagnitudeByTheRootOfTheLargestCode) {
  const std::vector<float> values = {-1, 2, -3, 4, kNan};
  EXPECT_FLOAT_EQ(learn("lsq", spec_of("int8", true), {values}).scale.scale, 2 * 2.5F / std::sqrt(127.0F));
  const std::vector<float> positive = {1, 2, 3, 4};
  const ScaleZero one_sided = learn("lsq", spec_of("uint8", false), {positive}).scale;
  EXPECT_FLOAT_EQ(one_sided.scale, 2 * 2.5F / std::sqrt(255.0F));
  EXPECT_EQ(one_sided.zero_point, 0);
}

}  // namespace
}  // namespace kaon
