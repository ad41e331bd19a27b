// What operators say about themselves, against what their kernels do.
#include "engine/op_facts.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "engine/op.h"
#include "engine/plan/actions.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

TEST(OpFacts, EveryOperatorSaysWhatItsShapesFollowFrom) {
  for (const auto& [domain, name] : operators().names()) {
    EXPECT_NE(operators().facts(domain, name)->shape, ShapeSource::Unsaid) << domain << " " << name;
  }
}

TEST(OpFacts, AnUnknownOperatorHasNone) {
  const OpFacts facts = facts_of(make_node("Nonesuch", {"x"}, {"y"}), Graph());
  EXPECT_EQ(facts.shape, ShapeSource::Unsaid);
  EXPECT_EQ(facts.samples, Samples::Mixed);
  EXPECT_EQ(facts.homogeneous, Homogeneous::No);
}

Attribute ints(std::string name, std::vector<int64_t> values) { return {std::move(name), std::move(values), {}}; }

/// A node of every operator that says it is homogeneous or moves numbers; x is [2, 4, 4, 4] or [1, 4, 4, 4].
struct Sample {
  Node node;
  std::vector<Initializer> constants;
};

std::map<std::string, Sample> samples() {
  const auto longs = [](std::string name, std::vector<int64_t> values) {
    const auto count = std::ssize(values);
    return Initializer{std::move(name), Tensor::of<int64_t>({count}, values), {}, {}};
  };
  const auto plain = [](const char* op, std::vector<Attribute> attributes = {}) {
    return Sample{make_node(op, {"x"}, {"y"}, std::move(attributes)), {}};
  };
  const auto with = [](const char* op, Initializer constant, std::vector<Attribute> attributes = {}) {
    Node node = make_node(op, {"x", constant.name}, {"y"}, std::move(attributes));
    return Sample{std::move(node), {std::move(constant)}};
  };
  std::map<std::string, Sample> all;
  for (const char* op : {"Relu", "LeakyRelu", "Neg", "Abs", "Identity", "Dropout", "GlobalAveragePool", "GlobalMaxPool",
                         "GlobalLpPool", "Flatten", "Transpose"}) {
    all[op] = plain(op);
  }
  for (const char* op : {"MaxPool", "AveragePool", "LpPool"}) all[op] = plain(op, {ints("kernel_shape", {2, 2})});
  for (const char* op : {"ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceL2"}) {
    all[op] = plain(op, {ints("axes", {2, -1})});
  }
  for (const char* op : {"DepthToSpace", "SpaceToDepth"}) all[op] = plain(op, {{"blocksize", int64_t{2}, {}}});
  all["PRelu"] = with("PRelu", make_constant("slope", {4, 1, 1}, {-1, 0.5F, 0, 2}));
  all["ReduceSum"] = with("ReduceSum", longs("axes", {2, 3}));
  all["Reshape"] = with("Reshape", longs("shape", {0, -1}));
  all["Squeeze"] = with("Squeeze", longs("axes", {}));
  all["Unsqueeze"] = with("Unsqueeze", longs("axes", {1}));
  all["Expand"] = with("Expand", longs("shape", {3, 1, 4, 4, 4}));
  all["Tile"] = with("Tile", longs("repeats", {1, 2, 1, 1}));
  all["Gather"] = with("Gather", longs("indices", {2, 0}), {{"axis", int64_t{1}, {}}});
  all["Pad"] = with("Pad", longs("pads", {0, 0, 1, 1, 0, 0, 1, 1}));
  all["Upsample"] = with("Upsample", make_constant("scales", {4}, {1, 1, 2, 2}));
  all["Split"] = plain("Split", {{"axis", int64_t{1}, {}}});
  all["Split"].node.outputs = {"y", "z"};
  all["Concat"] = {make_node("Concat", {"x", "x"}, {"y"}, {{"axis", int64_t{1}, {}}}), {}};
  all["Slice"] = {make_node("Slice", {"x", "starts", "ends", "axes"}, {"y"}),
                  {longs("starts", {1, 0}), longs("ends", {3, 2}), longs("axes", {2, -1})}};
  all["Resize"] = {make_node("Resize", {"x", "", "scales"}, {"y"}), {make_constant("scales", {4}, {1, 1, 2, 2})}};
  return all;
}

Tensor numbers(bool scale_channels, bool scale_all, int64_t batch) {
  std::vector<float> values(static_cast<size_t>(batch * 64));
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t channel = i / 16 % 4;
    values[i] = static_cast<float>(static_cast<int>(i * 37 % 61) - 30);
    if (scale_channels) values[i] *= static_cast<float>(1 << channel);  // powers of two: no rounding
    if (scale_all) values[i] *= 4;
  }
  return Tensor::of<float>({batch, 4, 4, 4}, values);
}

Model model_of(const Sample& sample) {
  const int64_t opset = sample.node.op == "Upsample" ? 9 : sample.node.op.starts_with("Reduce") ? 13 : 17;
  return make_model({sample.node}, sample.constants, {make_value("x", {2, 4, 4, 4})}, {sample.node.outputs[0]}, opset);
}

TEST(OpFacts, WhatIsHomogeneousScalesWithItsInput) {
  const std::map<std::string, Sample> all = samples();
  for (const auto& [domain, name] : operators().names()) {
    const OpFacts& facts = *operators().facts(domain, name);
    if (!domain.empty() || (facts.homogeneous == Homogeneous::No && facts.flow != FlowKind::Moves)) continue;
    EXPECT_TRUE(all.contains(name)) << name << " says so, but has no node here to try it on";
  }
  for (const auto& [name, sample] : all) {
    SCOPED_TRACE(name);
    const Model model = model_of(sample);
    const OpFacts facts = facts_of(sample.node, model.graph);
    ASSERT_NE(facts.homogeneous, Homogeneous::No);
    Engine engine(model);
    const Tensor before = engine.run({{"x", numbers(false, false, 2)}}).at(0);
    const Tensor all_scaled = engine.run({{"x", numbers(false, true, 2)}}).at(0);
    const std::vector<float> x = before.to_float();
    const std::vector<float> y = all_scaled.to_float();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 4 * x[i]);
    if (facts.homogeneous != Homogeneous::Channels) continue;
    const Tensor scaled = engine.run({{"x", numbers(true, false, 2)}}).at(0);
    const std::vector<float> z = scaled.to_float();
    ASSERT_EQ(before.shape().at(1), 4);
    const size_t inner = x.size() / 8;
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(z[i], static_cast<float>(1 << (i / inner % 4)) * x[i]);
  }
}

TEST(OpFacts, WhatMovesMakesNoNewNumbers) {
  for (const auto& [name, sample] : samples()) {
    const Model model = model_of(sample);
    if (facts_of(sample.node, model.graph).flow != FlowKind::Moves) continue;
    const Tensor x = numbers(false, false, 2);
    const std::vector<float> given = x.to_float();
    for (const float value : Engine(model).run({{"x", x}}).at(0).to_float()) {
      EXPECT_TRUE(value == 0 || std::ranges::find(given, value) != given.end()) << name << " makes " << value;
    }
  }
}

TEST(OpFacts, AttributesAndConstantsTakeFactsBack) {
  Graph graph;
  graph.initializers = {make_constant("one", {}, {1}), make_constant("zero", {}, {0})};
  graph.inputs = {make_value("x", {2, 4, 4, 4})};
  EXPECT_EQ(facts_of(make_node("Pad", {"x", "pads", "zero"}, {"y"}), graph).flow, FlowKind::Moves);
  EXPECT_EQ(facts_of(make_node("Pad", {"x", "pads", "one"}, {"y"}), graph).flow, FlowKind::Other);
  EXPECT_EQ(facts_of(make_node("Pad", {"x", "pads", "unknown"}, {"y"}), graph).homogeneous, Homogeneous::No);
  const Attribute linear{"mode", std::string("linear"), {}};
  EXPECT_EQ(facts_of(make_node("Resize", {"x", "", "s"}, {"y"}, {linear}), graph).flow, FlowKind::Other);
  EXPECT_EQ(facts_of(make_node("ReduceMean", {"x"}, {"y"}, {ints("axes", {1})}), graph).homogeneous,
            Homogeneous::Tensor);
  EXPECT_EQ(facts_of(make_node("Concat", {"x", "x"}, {"y"}, {{"axis", int64_t{-4}, {}}}), graph).samples,
            Samples::Mixed);
  EXPECT_EQ(facts_of(make_node("BatchNormalization", {"x"}, {"y"}, {{"training_mode", int64_t{1}, {}}}), graph).samples,
            Samples::Mixed);
}

TEST(OpFacts, APlanRefusesShapesThatItsTraceDidNotSee) {
  const Kernel kernel = [](Call& call) { call.out(0, at::ones({3})); };
  const Node node = make_node("Wrong", {}, {"y"});
  const auto run = [&](const Shape& shape, DType type) {
    Runtime runtime;
    runtime.pointers.resize(1);
    runtime.values.resize(1);
    runtime.aliases.resize(1);
    runtime.shapes = {shape};
    runtime.types = {type};
    AtenAction(kernel, node, {}, {0}).run(runtime);
  };
  run({3}, DType::Float32);
  const std::string message = error_of(ErrorCode::Internal, [&] { run({4}, DType::Float32); });
  EXPECT_NE(message.find("float32[3] where the plan expects float32[4]"), std::string::npos) << message;
  error_of(ErrorCode::Internal, [&] { run({3}, DType::Int32); });
}

}  // namespace
}  // namespace kaon
