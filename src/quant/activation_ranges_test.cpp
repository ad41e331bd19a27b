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

/// Activations of 4 bits: clipping some is better than a coarse step for all.
Config searching(const char* scheme, bool search) {
  Config config = scheme_config(scheme);
  if (config.global.input.spec) config.global.input.spec->format = "uint4";
  config.global.output = SlotRule::stays_float();
  if (search) config.algorithms = {{"range_search", {{"weights", 0}, {"activations", 1}}}};
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

TEST(ActivationRanges, TheOutputLosesLess) {
  const MemoryDataset data = residual_data();
  const QuantizedModel before = quantize(residual_network(), searching("w8a8", false), &data);
  const QuantizedModel after = quantize(residual_network(), searching("w8a8", true), &data);
  EXPECT_GE(after.algorithms.at(0).changed, 2);
  // Weights stay as they were.
  EXPECT_EQ(after.find("conv1", Slot::Weight)->params.scale, before.find("conv1", Slot::Weight)->params.scale);
  EXPECT_LT(error_of(searching("w8a8", true), data), 0.8 * error_of(searching("w8a8", false), data));
}

TEST(ActivationRanges, EachEndOfARangeFindsItsPlace) {
  // One value in a thousand reaches 12, on one side: the other end has less reason to move.
  std::vector<float> values = random_values(64 * 16, 3);
  values[100] = 12;
  const MemoryDataset data({64, 16}, values);
  Model model = make_model({make_node("Gemm", {"x", "w"}, {"y"})}, {random_constant("w", {16, 8}, 1)},
                           {make_value("x", {0, 16})}, {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  const auto range_of = [&](const Config& config) {
    const QuantizedModel quantized = quantize(model, config, &data);
    const QuantParams& params = quantized.find(quantized.layers[0].name, Slot::Input)->params;
    const auto zero = static_cast<float>(params.zero_point.at(0));
    return Range{-zero * params.scale.at(0), (15 - zero) * params.scale.at(0)};
  };
  const Range before = range_of(searching("w8a8", false));
  const Range after = range_of(searching("w8a8", true));
  EXPECT_GT(before.max, 10);
  EXPECT_LT(after.max, 0.7F * before.max);
  EXPECT_LT(after.min, 0.5F * before.min);
}

TEST(ActivationRanges, SchemesWithoutStaticActivationsHaveNone) {
  const MemoryDataset data = residual_data();
  const QuantizedModel quantized = quantize(residual_network(), searching("w8", true), &data);
  EXPECT_EQ(quantized.algorithms.at(0).changed, 0);
}

}  // namespace
}  // namespace kaon
