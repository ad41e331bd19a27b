// Faults that are planted must be found, and nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "debug/debug_model.h"
#include "engine/engine.h"
#include "quant/networks_test.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

const QuantizeSettings kAnyNumbers{.allow_non_finite = true};

constexpr int64_t kChannels = 16;

/// x [N,16,6,6] -> four convolutions 1×1, named a to d -> y.
Model chain() {
  std::vector<Node> nodes;
  std::vector<Initializer> constants;
  std::string value = "x";
  for (const std::string name : {"a", "b", "c", "d"}) {
    const auto seed = static_cast<uint64_t>(name[0]);
    constants.push_back(random_constant(name + ".weight", {kChannels, kChannels, 1, 1}, seed));
    constants.push_back(random_constant(name + ".bias", {kChannels}, seed + 50));
    nodes.push_back(make_node("Conv", {value, name + ".weight", name + ".bias"}, {name + "_y"}));
    value = name + "_y";
  }
  Model model = make_model(std::move(nodes), std::move(constants), {make_value("x", {0, kChannels, 6, 6})}, {value});
  model.graph.inputs[0].shape->front() = {std::nullopt, "N"};
  return model;
}

void change(Model& model, const std::string& constant, const std::function<void(std::vector<float>&)>& edit) {
  Initializer& initializer = *model.graph.find_initializer(constant);
  std::vector<float> values = initializer.tensor.to_float();
  edit(values);
  initializer.tensor = Tensor::of(initializer.tensor.shape(), values);
}

/// The quantizers of the first `count` different ids of the ranking.
std::set<std::string> worst(const DebugReport& report, size_t count) {
  std::set<std::string> names;
  std::set<int64_t> ids;
  for (const DebugRow& row : report.rows) {
    if (ids.size() == count && !ids.contains(report.of(row).id)) break;
    ids.insert(report.of(row).id);
    names.insert(row.layer + "." + std::string(name_of(row.slot)));
  }
  return names;
}

TEST(Faults, AnOutlierChannelAndASaturatedRangeAreWorst) {
  Model model = chain();
  change(model, "a.weight", [](std::vector<float>& w) {
    for (size_t i = 0; i < kChannels; ++i) w[5 * kChannels + i] *= 60;
  });
  change(model, "a.bias", [](std::vector<float>& b) { b[5] = 30; });
  change(model, "b.weight", [](std::vector<float>& w) {
    for (size_t o = 0; o < kChannels; ++o) w[o * kChannels + 5] /= 60;
  });
  const MemoryDataset data = residual_data(16);
  QuantizedModel quantized = quantize(model, scheme_config("w8a8c"), &data);
  Quantizer& saturated = const_cast<Quantizer&>(*quantized.find("c", Slot::Output));
  saturated.params.scale[0] /= 6;
  const DebugReport report = debug(quantized, data);
  EXPECT_EQ(worst(report, 2), (std::set<std::string>{"a.output", "b.input", "c.output", "d.input"}));
  EXPECT_FALSE(report.nan.has_value());
  for (const QuantizerDebug& quantizer : report.quantizers) {
    const bool outlier = quantizer.tensor == "a_y" || quantizer.tensor == "a.weight";
    EXPECT_EQ(quantizer.outlier_channels(), outlier ? std::vector<int64_t>{5} : std::vector<int64_t>{})
        << quantizer.tensor;
    // The quantized run may leave the range that the float run taught, by a few elements.
    EXPECT_EQ(quantizer.clipped() > 0.001, quantizer.tensor == "c_y") << quantizer.tensor;
    if (quantizer.tensor == "a_y") {
      EXPECT_NE(quantizer.reading.find("1 of 16 output channels (5) holds 9"), std::string::npos) << quantizer.reading;
      EXPECT_GT(quantizer.channel_imbalance(), 10);
    }
    if (quantizer.tensor == "c_y") {
      EXPECT_NE(quantizer.reading.find("are clipped at ["), std::string::npos) << quantizer.reading;
      EXPECT_GT(quantizer.clip_error(), 50 * quantizer.round_error());
      EXPECT_GT(quantizer.cumulative_error(), 0.1);
    }
  }
}

TEST(Faults, AHealthyModelHasNone) {
  const MemoryDataset data = residual_data(16);
  for (const QuantizerDebug& quantizer : debug(quantize(chain(), scheme_config("w8a8c"), &data), data).quantizers) {
    EXPECT_TRUE(quantizer.outlier_channels().empty()) << quantizer.tensor;
    EXPECT_LT(quantizer.clipped(), 0.001) << quantizer.tensor;
  }
}

/// A Sqrt behind c: NaN where c makes something negative.
Model with_sqrt() {
  Model model = chain();
  Node root = make_node("Sqrt", {"c_y"}, {"root"});
  root.name = "/head/Sqrt";
  model.graph.nodes.insert(model.graph.nodes.begin() + 3, root);
  model.graph.nodes[4].inputs[0] = "root";
  return model;
}

TEST(Faults, ANanOfTheFloatModelIsNamed) {
  const MemoryDataset data = residual_data(12);
  const QuantizedModel quantized = quantize(with_sqrt(), scheme_config("w8a8"), &data, kAnyNumbers);
  DebugOptions options;
  options.nan = true;
  options.batch = 4;
  const DebugReport report = debug(quantized, data, options);
  ASSERT_TRUE(report.nan.has_value());
  Engine engine(quantized.model);
  std::vector<float> root;
  Hooks hooks;
  hooks.add("root", [&](const std::string&, const Tensor& tensor) {
    root = tensor.to_float();
    return std::nullopt;
  });
  engine.run(data.read(0, 4).inputs, hooks);
  const auto first = std::find_if(root.begin(), root.end(), [](float v) { return std::isnan(v); }) - root.begin();
  EXPECT_EQ(report.nan->layer, "head");
  EXPECT_EQ(report.nan->slot, Slot::Output);
  EXPECT_TRUE(report.nan->float_run);
  EXPECT_EQ(report.nan->batch, 0);
  EXPECT_EQ(report.nan->index, first);
  EXPECT_EQ(report.nan->element, (Shape{first / 576, first / 36 % 16, first / 6 % 6, first % 6}));
  EXPECT_EQ(report.batches, 1) << "it must stop";
}

TEST(Faults, WithoutTheSwitchItGoesOnAndCounts) {
  const MemoryDataset data = residual_data(12);
  const QuantizedModel quantized = quantize(with_sqrt(), scheme_config("w8a8"), &data, kAnyNumbers);
  DebugOptions options;
  options.batch = 4;
  options.act_hist = true;
  const DebugReport report = debug(quantized, data, options);
  EXPECT_EQ(report.batches, 3);
  ASSERT_TRUE(report.nan.has_value());
  EXPECT_EQ(report.nan->batch, 0);
  const QuantizerDebug& worst = report.of(report.rows.front());
  EXPECT_GT(worst.non_finite(), 0);
  EXPECT_NE(worst.reading.find("NaN"), std::string::npos);
  EXPECT_TRUE(std::isfinite(worst.io.mse()));
}

TEST(Faults, ANanWeightIsNamedBeforeAnythingRuns) {
  Model model = chain();
  change(model, "c.weight", [](std::vector<float>& w) { w[37] = NAN; });
  const MemoryDataset data = residual_data(4);
  DebugOptions options;
  options.nan = true;
  const DebugReport report = debug(quantize(model, scheme_config("w8a8"), &data, kAnyNumbers), data, options);
  ASSERT_TRUE(report.nan.has_value());
  EXPECT_EQ(report.nan->layer, "c");
  EXPECT_EQ(report.nan->slot, Slot::Weight);
  EXPECT_EQ(report.nan->batch, -1);
  EXPECT_EQ(report.nan->index, 37);
  EXPECT_EQ(report.batches, 0);
}

TEST(Faults, AnInfOfTheQuantizedModelAloneIsTold) {
  Model model = chain();
  // 1 / a, where a is above 0 in the float model but rounds to 0 once quantized.
  change(model, "a.weight", [](std::vector<float>& w) { std::fill(w.begin(), w.end(), 0.0F); });
  change(model, "a.bias", [](std::vector<float>& b) {
    std::fill(b.begin(), b.end(), 1.0F);
    b[9] = 0.001F;
  });
  model.graph.nodes[1].inputs[0] = "inverse";
  model.graph.nodes.insert(model.graph.nodes.begin() + 1, make_node("Reciprocal", {"a_y"}, {"inverse"}));
  model.graph.nodes[1].name = "invert";
  const MemoryDataset data = residual_data(4);
  DebugOptions options;
  options.nan = true;
  const DebugReport report = debug(quantize(model, scheme_config("w8a8"), &data, kAnyNumbers), data, options);
  ASSERT_TRUE(report.nan.has_value());
  EXPECT_EQ(report.nan->layer, "invert");
  EXPECT_FALSE(report.nan->float_run);
  EXPECT_EQ(report.nan->element, (Shape{0, 9, 0, 0}));
  EXPECT_TRUE(std::isinf(report.nan->value));
}

}  // namespace
}  // namespace kaon
