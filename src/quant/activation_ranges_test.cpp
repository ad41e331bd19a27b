#include "quant/activation_ranges.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "quant/networks_test.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

/// Mostly around 1, a few values far out on one side.
MemoryDataset data_with_outliers() {
  std::vector<float> values = random_values(12 * 16 * 36, 7);
  for (size_t i = 0; i < values.size(); i += 1511) values[i] = 30;
  return {{12, 16, 6, 6}, values};
}

Config searching(const char* scheme, bool search) {
  Config config = scheme_config(scheme);
  if (search) config.algorithms = {{"range_search", {{"weights", 0}}}};
  return config;
}

double error_of(const Config& config, const Dataset& data) {
  const QuantizedModel quantized = quantize(residual_network(), config, &data);
  const TensorMap inputs = data.read(0, data.size()).inputs;
  const std::vector<float> exact = Engine(quantized.original).run(inputs)[0].to_float();
  const std::vector<float> found = Engine(simulate(quantized)).run(inputs)[0].to_float();
  double error = 0;
  for (size_t i = 0; i < exact.size(); ++i) error += std::pow(static_cast<double>(exact[i]) - found[i], 2);
  return error;
}

TEST(ActivationRanges, AFewLargeValuesAreClippedWhereThatServesTheOutput) {
  const MemoryDataset data = data_with_outliers();
  const QuantizedModel before = quantize(residual_network(), searching("w8a8", false), &data);
  const QuantizedModel after = quantize(residual_network(), searching("w8a8", true), &data);
  EXPECT_GE(after.algorithms.at(0).changed, 1);
  // Weights stay as they were.
  EXPECT_EQ(after.find("conv1", Slot::Weight)->params.scale, before.find("conv1", Slot::Weight)->params.scale);
  for (const char* scheme : {"w8a8", "a16w8"}) {
    EXPECT_LE(error_of(searching(scheme, true), data), 1.05 * error_of(searching(scheme, false), data)) << scheme;
  }
}

TEST(ActivationRanges, EachEndOfARangeFindsItsPlace) {
  // One value in a thousand reaches 200, on one side: the other end has no reason to move with it.
  std::vector<float> values = random_values(64 * 16, 3);
  values[100] = 200;
  const MemoryDataset data({64, 16}, values);
  Model model = make_model({make_node("Gemm", {"x", "w"}, {"y"})}, {random_constant("w", {16, 8}, 1)},
                           {make_value("x", {0, 16})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  const auto scale_of = [&](const Config& config) {
    const QuantizedModel quantized = quantize(model, config, &data);
    return quantized.find(quantized.layers[0].name, Slot::Input)->params.scale.at(0);
  };
  const float before = scale_of(searching("w8a8", false));
  const float after = scale_of(searching("w8a8", true));
  EXPECT_NEAR(before, 203.0F / 255, 0.02F);
  EXPECT_LT(after, before);
  EXPECT_GT(after * 255, 40);  // not below `least` of what was seen
}

TEST(ActivationRanges, SchemesWithoutStaticActivationsHaveNone) {
  const MemoryDataset data = data_with_outliers();
  const QuantizedModel quantized = quantize(residual_network(), searching("w8", true), &data);
  EXPECT_EQ(quantized.algorithms.at(0).changed, 0);
}

}  // namespace
}  // namespace kaon
