#include <gtest/gtest.h>

#include <random>

#include "numerics/error_metrics.h"
#include "quant/observer.h"

namespace kaon {
namespace {

std::vector<float> weights(int64_t count) {
  std::mt19937 random(5);
  std::normal_distribution<float> distribution(0, 0.05F);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = distribution(random);
  return values;
}

std::vector<TensorSpec> granularities() {
  TensorSpec spec;
  spec.format = "int4";
  std::vector<TensorSpec> all;
  for (const bool symmetric : {true, false}) {
    spec.symmetric = symmetric;
    for (const auto granularity : {Granularity::PerTensor, Granularity::PerChannel, Granularity::PerGroup,
                                   Granularity::PerBlock, Granularity::PerToken}) {
      for (const int64_t axis : {0, 1, -1}) {
        spec.granularity = granularity;
        spec.axis = axis;
        spec.group_size = 5;
        all.push_back(spec);
      }
    }
  }
  return all;
}

/// The tile of every element, from the definition.
std::vector<int64_t> tiles_of(const Tiling& tiling) {
  const std::vector<int64_t> grid = tiling.grid();
  std::vector<int64_t> result;
  for (int64_t i = 0; i < tiling.element_count(); ++i) {
    int64_t rest = i;
    int64_t tile = 0;
    int64_t stride = 1;
    for (size_t axis = tiling.shape.size(); axis-- > 0;) {
      tile += rest % tiling.shape[axis] / tiling.tile[axis] * stride;
      stride *= grid[axis];
      rest /= tiling.shape[axis];
    }
    result.push_back(tile);
  }
  return result;
}

TEST(ObserveParamsTest, EveryTileHasTheParametersOfItsOwnObserver) {
  const std::vector<int64_t> shape = {6, 7, 4};
  const std::vector<float> values = weights(6 * 7 * 4);
  for (const TensorSpec& spec : granularities()) {
    const std::vector<int64_t> tile_of = tiles_of(tiling_of(spec, shape));
    for (const std::string& name : observers().names()) {
      SCOPED_TRACE(name + " " + std::string(enum_name(spec.granularity)) + " axis " + std::to_string(spec.axis));
      // Small tiles have histograms of 8 bins for each value, but no fewer than 1024.
      const QuantParams params = observe_params(values, shape, spec, {name, {}}, "test");
      ASSERT_EQ(std::ssize(params.scale), params.tiling.tile_count());
      for (int64_t tile = 0; tile < params.tiling.tile_count(); ++tile) {
        std::vector<float> own;
        for (size_t i = 0; i < values.size(); ++i) {
          if (tile_of[i] == tile) own.push_back(values[i]);
        }
        ObserverConfig config{name, {}};
        for (const Option& option : observers().get(name).options) {
          if (option.name != "bins") continue;
          config.options["bins"] = std::max<double>(1024, 8.0 * static_cast<double>(own.size()));
        }
        const auto observer = make_observer(config, spec, "test");
        observer->update(own);
        observer->end_batch();
        EXPECT_FLOAT_EQ(params.scale[static_cast<size_t>(tile)], observer->scale().scale);
        EXPECT_EQ(params.zero_point.empty() ? 0 : params.zero_point[static_cast<size_t>(tile)],
                  observer->scale().zero_point);
      }
    }
  }
}

TEST(ObserveParamsTest, HalfPrecisionWeights) {
  const std::vector<uint16_t> ones(64, 0x3c00);  // 1.0 in float16
  TensorSpec spec;
  spec.granularity = Granularity::PerGroup;
  spec.axis = 1;
  for (const std::string& name : observers().names()) {
    const QuantParams params = observe_params(FloatView(ones.data(), 64, FloatView::Type::Float16),
                                              std::vector<int64_t>{1, 64}, spec, {name, {}}, "test");
    ASSERT_EQ(params.scale.size(), 2U) << name;
    EXPECT_EQ(params.scale[0], params.scale[1]) << name;
  }
}

TEST(ObserveParamsTest, CastsHaveTheScaleOneAndBlocksHaveNone) {
  const std::vector<int64_t> shape = {4, 32};
  const std::vector<float> values = weights(4 * 32);
  TensorSpec spec;
  for (const std::string& name : observers().names()) {
    spec.format = "bfloat16";
    EXPECT_EQ(observe_params(values, shape, spec, {name, {}}, "test").scale, std::vector<float>{1}) << name;
    spec.format = "mxfp4";
    EXPECT_TRUE(observe_params(values, shape, spec, {name, {}}, "test").scale.empty()) << name;
  }
}

TEST(ObserveParamsTest, EmptyAndWrongTensors) {
  TensorSpec spec;
  for (const std::string& name : observers().names()) {
    const QuantParams params = observe_params(FloatView{}, std::vector<int64_t>{0}, spec, {name, {}}, "test");
    EXPECT_EQ(params.scale, std::vector<float>(static_cast<size_t>(params.tiling.tile_count()), 1)) << name;
    EXPECT_THROW(observe_params(weights(5), std::vector<int64_t>{6}, spec, {name, {}}, "test"), Error) << name;
  }
}

TEST(ObserveParamsTest, MseBeatsMinMaxOnSmallGroups) {
  const std::vector<int64_t> shape = {256, 256};
  const std::vector<float> values = weights(256 * 256);
  TensorSpec spec;
  spec.granularity = Granularity::PerGroup;
  spec.axis = 1;
  spec.group_size = 32;
  struct Case {
    std::string format;
    bool symmetric;
    double most;  ///< of min_max's error; the best possible for uint4 is 0.926
  };
  for (const auto& [name, symmetric, most] :
       {Case{"int4", true, 0.8}, Case{"uint4", false, 0.935}, Case{"int2", true, 0.6}}) {
    spec.format = name;
    spec.symmetric = symmetric;
    const auto error = [&](const std::string& observer) {
      std::vector<float> out(values.size());
      fake_quantize(values, out, shape, spec, observe_params(values, shape, spec, {observer, {}}, "test"));
      ErrorMetrics metrics;
      metrics.update(out, values);
      return metrics.mse();
    };
    EXPECT_LT(error("mse"), most * error("min_max")) << name;
  }
}

}  // namespace
}  // namespace kaon
