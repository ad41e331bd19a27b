#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/engine.h"
#include "quant/algorithm.h"
#include "quant/faked_test.h"
#include "quant/networks_test.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

MemoryDataset block_data() { return {{12, 8, 6, 6}, random_values(12 * 8 * 36, 7)}; }

Config with_cle(const char* scheme) {
  Config config = scheme_config(scheme);
  config.algorithms = {{"cle"}};
  return config;
}

std::vector<float> outputs(const Model& model, const Dataset& data) {
  Engine engine(model);
  return engine.run(data.read(0, data.size()).inputs)[0].to_float();
}

double error_between(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, energy = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - b[i], 2);
    energy += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(squares / energy);
}

/// The block with a Clip(0, 6) in the place of each Relu.
Model clipped(Model model) {
  for (Node& node : model.graph.nodes) {
    if (node.op != "Relu") continue;
    node.op = "Clip";
    node.inputs.insert(node.inputs.end(), {"zero", "six"});
  }
  model.graph.initializers.push_back(make_constant("zero", {}, {0}));
  model.graph.initializers.push_back(make_constant("six", {}, {6}));
  return model;
}

TEST(Cle, TheFloatFunctionStaysAsItIs) {
  const MemoryDataset data = block_data();
  for (const Model& model : {inverted_residual(true), clipped(inverted_residual(true))}) {
    const QuantizedModel quantized = quantize(model, with_cle("w8"), &data);
    EXPECT_EQ(quantized.algorithms.at(0).changed, 2);
    EXPECT_LT(error_between(outputs(quantized.model, data), outputs(model, data)), 1e-5);
    EXPECT_EQ(outputs(quantized.original, data), outputs(model, data));
  }
}

TEST(Cle, UnequalChannelsNoLongerHurt) {
  const MemoryDataset data = block_data();
  for (const bool clips : {false, true}) {
    const Model model = clips ? clipped(inverted_residual(true)) : inverted_residual(true);
    const std::vector<float> exact = outputs(model, data);
    const auto error = [&](const Config& config) {
      return error_between(outputs(simulate(quantize(model, config, &data)), data), exact);
    };
    const double before = error(scheme_config("w8"));
    const double after = error(with_cle("w8"));
    EXPECT_LT(after, before / 3) << clips;
    EXPECT_LT(after, 0.05) << clips;
  }
}

TEST(Cle, ValuesBetweenAreNotedInTheirNewUnits) {
  const MemoryDataset data = block_data();
  const Model model = clipped(inverted_residual(true));
  const QuantizedModel quantized = quantize(model, with_cle("w8"), &data);
  for (const char* value : {"a", "ra", "b", "rb"}) ASSERT_TRUE(quantized.rescaled.contains(value)) << value;
  EXPECT_FALSE(quantized.rescaled.contains("y"));
  const auto value_of = [&](const Model& whole, const char* name) {
    std::vector<float> seen;
    Engine engine(whole);
    Hooks hooks;
    hooks.add(name, [&](const std::string&, const Tensor& tensor) {
      seen = tensor.to_float();
      return std::nullopt;
    });
    engine.run(data.read(0, 2).inputs, hooks);
    return seen;
  };
  const std::vector<float> before = value_of(quantized.original, "ra");
  const std::vector<float> after = value_of(quantized.model, "ra");
  const std::vector<float>& factors = quantized.rescaled.at("ra").factors;
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i], before[i] * factors[i / 36 % 16], 1e-5 * std::fabs(after[i]) + 1e-6);
  }
}

TEST(Cle, ActivationsKeepTheirRangesWhereAsked) {
  const MemoryDataset data = block_data();
  const Model model = inverted_residual(true);
  const auto largest = [&](const Config& config) {
    const QuantizedModel quantized = quantize(model, config, &data);
    return quantized.find("a", Slot::Output)->observed.max;
  };
  const float before = largest(scheme_config("w8a8"));
  Config config = with_cle("w8a8");
  config.algorithms[0].options["activations"] = 1;
  EXPECT_LE(largest(config), before * 1.001F);
}

TEST(Cle, AClipThatNothingReachesBecomesAReluWhereAsked) {
  Model model = inverted_residual(true);
  for (Node& node : model.graph.nodes) {
    if (node.op == "Relu") node = make_node("Clip", {node.inputs[0], "zero", "far"}, {node.outputs[0]});
  }
  model.graph.initializers.push_back(make_constant("zero", {}, {0}));
  model.graph.initializers.push_back(make_constant("far", {}, {1e6F}));
  const MemoryDataset data = block_data();
  const auto count = [&](const QuantizedModel& quantized, const char* op) {
    return std::ranges::count(quantized.model.graph.nodes, op, &Node::op);
  };
  Config config = with_cle("w8");
  const QuantizedModel kept = quantize(model, config, &data);
  EXPECT_EQ(count(kept, "Min"), 2);
  config.algorithms[0].options["relu"] = 1;
  const QuantizedModel opened = quantize(model, config, &data);
  EXPECT_EQ(count(opened, "Min"), 0);
  EXPECT_EQ(count(opened, "Relu"), 2);
  EXPECT_NE(opened.algorithms.at(0).notes.at(0).find("2 Clips are Relus now"), std::string::npos);
  EXPECT_EQ(outputs(opened.model, data), outputs(kept.model, data));
  // One that data reach stays.
  model.graph.find_initializer("far")->tensor = Tensor::scalar(0.5F);
  EXPECT_EQ(count(quantize(model, config, &data), "Min"), 2);
}

/// Channels of what lies between that stay far from 0.
Model with_high_biases(Model model, float least = 3) {
  for (const char* name : {"a.bias", "b.bias"}) {
    Initializer& bias = *model.graph.find_initializer(name);
    std::vector<float> values = bias.tensor.to_float();
    for (size_t c = 0; c < values.size(); c += 2) values[c] = least + static_cast<float>(c) / 8;
    bias.tensor = Tensor::of(bias.tensor.shape(), values);
  }
  return model;
}

bool says(const QuantizedModel& quantized, const char* words) {
  return std::ranges::any_of(quantized.algorithms.at(0).notes,
                             [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

/// Around a depthwise layer's image lie zeros, which are shifted too; data the calibration never saw go lower.
TEST(Cle, AbsorbedBiasesLeaveTheFunctionAsItIs) {
  const MemoryDataset data = block_data();
  const MemoryDataset others({12, 8, 6, 6}, random_values(12 * 8 * 36, 99, 5));
  for (const bool clips : {false, true}) {
    const Model model = with_high_biases(clips ? clipped(inverted_residual(false)) : inverted_residual(false));
    for (const char* scheme : {"fp8", "w8a8"}) {
      Config config = with_cle(scheme);
      config.algorithms[0].options["absorb"] = 1;
      const QuantizedModel quantized = quantize(model, config, &data);
      const bool floats = std::string(scheme) == "fp8";
      EXPECT_EQ(quantized.rescaled.at("rb").shifts.empty(), false) << scheme << clips;
      EXPECT_EQ(quantized.rescaled.at("ra").shifts.empty(), !floats) << "integers gain nothing before a padded layer";
      EXPECT_TRUE(says(quantized, "went into the next layers")) << scheme << clips;
      EXPECT_LT(error_between(outputs(quantized.model, data), outputs(model, data)), 1e-5) << scheme << clips;
      EXPECT_LT(error_between(outputs(quantized.model, others), outputs(model, others)), 1e-5) << scheme << clips;
    }
  }
}

TEST(Cle, AbsorbedBiasesLeaveFinerSteps) {
  const MemoryDataset data = block_data();
  const Model model = with_high_biases(clipped(inverted_residual(false)));
  const std::vector<float> exact = outputs(model, data);
  const auto error = [&](const char* scheme, bool absorb) {
    Config config = with_cle(scheme);
    config.global.weight = SlotRule::stays_float();
    config.algorithms[0].options["absorb"] = absorb ? 1 : 0;
    return error_between(outputs(simulate(quantize(model, config, &data)), data), exact);
  };
  EXPECT_LT(error("fp8", true), 0.6 * error("fp8", false));
  const auto range = [&](bool absorb) {
    Config config = with_cle("w8a8");
    config.algorithms[0].options["absorb"] = absorb ? 1 : 0;
    const Model open = with_high_biases(inverted_residual(false), 30);
    return quantize(open, config, &data).find("b", Slot::Output)->observed.max;
  };
  EXPECT_LT(range(true), range(false));
}

TEST(Cle, WithNothingToAbsorbItSaysSo) {
  Config config = with_cle("w8");
  config.algorithms[0].options["absorb"] = 1;
  const MemoryDataset data = block_data();
  const QuantizedModel quantized = quantize(with_high_biases(inverted_residual(false)), config, &data);
  EXPECT_TRUE(says(quantized, "no bias could be absorbed"));
}

TEST(Cle, WithoutAPairItSaysSo) {
  Model model = make_model(
      {make_node("Conv", {"x", "w"}, {"c"}), make_node("Tanh", {"c"}, {"t"}), make_node("Conv", {"t", "v"}, {"y"})},
      {random_constant("w", {8, 8, 1, 1}, 1), random_constant("v", {8, 8, 1, 1}, 2)}, {make_value("x", {0, 8, 6, 6})},
      {"y"});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  const MemoryDataset data = block_data();
  const QuantizedModel quantized = quantize(model, with_cle("w8"), &data);
  EXPECT_EQ(quantized.algorithms.at(0).changed, 0);
  EXPECT_NE(quantized.algorithms.at(0).notes.at(0).find("no two layers"), std::string::npos);
  EXPECT_EQ(outputs(quantized.model, data), outputs(model, data));
}

}  // namespace
}  // namespace kaon
