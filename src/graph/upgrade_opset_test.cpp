#include "graph/upgrade_opset.h"

#include <algorithm>

#include "graph/build_test.h"
#include "graph/upgrade/rules.h"
#include "graph/verify.h"

namespace kaon {
namespace {

/// One node at an old opset, upgraded.
Model upgraded(Node node, int64_t from, std::vector<ValueInfo> inputs = {make_value("x", {2, 3, 4, 5})},
               std::vector<Initializer> constants = {}, int64_t target = 21) {
  std::vector<std::string> outputs = node.outputs;
  Model model = make_model({std::move(node)}, std::move(constants), std::move(inputs), std::move(outputs), from);
  model.ir_version = 3;
  upgrade_opset(model, target);
  EXPECT_NO_THROW(verify(model));
  return model;
}

std::vector<int64_t> ints_at(const Model& model, size_t input) {
  return model.graph.find_initializer(model.graph.nodes.back().inputs.at(input))->tensor.to_int64();
}

TEST(UpgradeOpset, RaisesVersions) {
  Model model = upgraded(make_node("Relu", {"x"}, {"y"}), 7);
  EXPECT_EQ(model.opset(), 21);
  EXPECT_EQ(model.ir_version, 10);
  EXPECT_EQ(upgrade_opset(model, 13), 0) << "there is no way down";
  EXPECT_EQ(model.opset(), 21);
  EXPECT_EQ(error_of(ErrorCode::Unsupported, [&] { upgrade_opset(model, 99); }),
            "opset 99: the newest that Kaon can upgrade to is 26");
}

TEST(UpgradeOpset, StopsAtTheTarget) {
  const Node node = make_node("Squeeze", {"x"}, {"y"}, {{"axes", std::vector<int64_t>{0}, {}}});
  EXPECT_EQ(upgraded(node, 9, {make_value("x", {1, 2})}, {}, 12).graph.nodes[0].inputs.size(), 1U);
  EXPECT_EQ(upgraded(node, 9, {make_value("x", {1, 2})}, {}, 13).graph.nodes[0].inputs.size(), 2U);
}

TEST(UpgradeOpset, AttributesBecomeInputs) {
  const std::vector<int64_t> axes{1, 2};
  for (const char* op : {"Squeeze", "Unsqueeze", "ReduceSum", "ReduceMean", "ReduceL2"}) {
    const Model model = upgraded(make_node(op, {"x"}, {"y"}, {{"axes", axes, {}}}), 9);
    EXPECT_EQ(ints_at(model, 1), axes) << op;
    EXPECT_EQ(model.graph.nodes[0].find("axes"), nullptr) << op;
  }
  const Model slice = upgraded(make_node("Slice", {"x"}, {"y"}, {{"starts", axes, {}}, {"ends", axes, {}}}), 9);
  EXPECT_EQ(slice.graph.nodes[0].inputs.size(), 3U);
  const Model clip = upgraded(make_node("Clip", {"x"}, {"y"}, {{"max", 6.0F, {}}}), 9);
  EXPECT_EQ(clip.graph.nodes[0].inputs[1], "") << "no lower bound";
  EXPECT_EQ(clip.graph.find_initializer(clip.graph.nodes[0].inputs[2])->tensor.as<float>()[0], 6.0F);
}

TEST(UpgradeOpset, BoundsOfClipHaveTheTypeOfItsInput) {
  const Model model =
      upgraded(make_node("Clip", {"x"}, {"y"}, {{"min", 0.5F, {}}}), 9, {make_value("x", {2}, DType::Float16)});
  EXPECT_EQ(model.graph.find_initializer(model.graph.nodes[0].inputs[1])->tensor.type(), DType::Float16);
  ValueInfo unknown;
  unknown.name = "x";
  EXPECT_EQ(error_of(ErrorCode::Unsupported,
                     [&] {
                       upgraded(make_node("Clip", {"x"}, {"y"}, {{"min", 0.5F, {}}}), 9, {unknown});
                     }),
            "Clip 'y': cannot be brought to a newer opset: the element type of its input is not known");
}

TEST(UpgradeOpset, SplitSaysHowManyUnlessItSaysHowLong) {
  EXPECT_EQ(upgraded(make_node("Split", {"x"}, {"a", "b"}), 11).graph.nodes[0].get_int("num_outputs", 0), 2);
  const Model lengths =
      upgraded(make_node("Split", {"x"}, {"a", "b"}, {{"split", std::vector<int64_t>{1, 1}, {}}}), 11);
  EXPECT_EQ(ints_at(lengths, 1), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(lengths.graph.nodes[0].find("num_outputs"), nullptr);
}

TEST(UpgradeOpset, SoftmaxOverSeveralAxesIsFlattened) {
  const auto ops = [](int64_t axis) {
    std::string text;
    const Model model = upgraded(make_node("Softmax", {"x"}, {"y"}, {{"axis", axis, {}}}), 11);
    for (const Node& node : model.graph.nodes) text += node.op + " ";
    EXPECT_EQ(model.graph.nodes.back().outputs[0], "y");
    return text;
  };
  EXPECT_EQ(ops(3), "Softmax ");
  EXPECT_EQ(ops(-1), "Softmax ");
  EXPECT_EQ(ops(1), "Flatten Softmax Shape Reshape ");
}

TEST(UpgradeOpset, SoftmaxLearnsTheRankFromTheOperatorsBefore) {
  Model model = make_model({make_node("Flatten", {"x"}, {"f"}), make_node("Gemm", {"f", "w"}, {"g"}),
                            make_node("Relu", {"g"}, {"r"}), make_node("Softmax", {"r"}, {"y"})},
                           {make_counting("w", {2, 2})}, {make_value("x")}, {"y"}, 9);
  upgrade_opset(model);
  EXPECT_EQ(model.graph.nodes.size(), 4U);
  EXPECT_EQ(model.graph.nodes[3].get_int("axis", -7), 1);
}

TEST(UpgradeOpset, UpsampleBecomesResize) {
  const Model model =
      upgraded(make_node("Upsample", {"x"}, {"y"}, {{"scales", std::vector<float>{1, 1, 2, 2}, {}}}), 7);
  const Node& node = model.graph.nodes[0];
  EXPECT_EQ(node.op, "Resize");
  EXPECT_EQ(node.inputs.size(), 3U);
  EXPECT_EQ(node.inputs[1], "");
  EXPECT_EQ(node.get_string("coordinate_transformation_mode", ""), "asymmetric");
  EXPECT_EQ(node.get_string("nearest_mode", ""), "floor");
}

TEST(UpgradeOpset, LegacyBroadcastingGetsTrailingAxes) {
  const Node add = make_node("Add", {"x", "b"}, {"y"}, {{"broadcast", int64_t{1}, {}}, {"axis", int64_t{1}, {}}});
  const Model constant = upgraded(add, 6, {make_value("x", {2, 3, 4, 5})}, {make_counting("b", {3})});
  EXPECT_EQ(constant.graph.find_initializer(constant.graph.nodes[0].inputs[1])->tensor.shape(), (Shape{3, 1, 1}));
  const Model given = upgraded(add, 6, {make_value("x", {2, 3, 4, 5}), make_value("b", {3})});
  ASSERT_EQ(given.graph.nodes.size(), 2U);
  EXPECT_EQ(given.graph.nodes[0].op, "Unsqueeze");
  EXPECT_EQ(given.graph.nodes[0].inputs.size(), 2U) << "helpers are upgraded too";
  EXPECT_TRUE(given.graph.nodes[1].attributes.empty());
}

TEST(UpgradeOpset, OutputsForTrainingMayBeThereButNotRead) {
  const std::vector<std::string> inputs{"x", "a", "b", "c", "d"};
  std::vector<ValueInfo> values;
  for (const std::string& input : inputs) values.push_back(make_value(input, {2}));
  Model model = make_model({make_node("BatchNormalization", inputs, {"y", "m", "v"}, {{"spatial", int64_t{1}, {}}})},
                           {}, values, {"y"}, 7);
  upgrade_opset(model);
  EXPECT_EQ(model.graph.nodes[0].outputs.size(), 1U);
  EXPECT_TRUE(model.graph.nodes[0].attributes.empty());
  EXPECT_EQ(error_of(ErrorCode::Unsupported,
                     [&] {
                       upgraded(make_node("BatchNormalization", inputs, {"y", "m"}), 7, values);
                     }),
            "BatchNormalization 'y': cannot be brought to a newer opset: its output 'm' is for training");
}

TEST(UpgradeOpset, AnOperatorWithoutARuleIsNamed) {
  const std::vector<ValueInfo> inputs{make_value("x"), make_value("t"), make_value("a")};
  EXPECT_EQ(error_of(ErrorCode::Unsupported,
                     [&] {
                       upgraded(make_node("Tile", {"x", "t", "a"}, {"y"}), 5, inputs);
                     }),
            "Tile 'y': cannot be brought to a newer opset: its meaning changed in version 6");
  EXPECT_NO_THROW(upgraded(make_node("Tile", {"x", "t"}, {"y"}), 6, {make_value("x"), make_value("t")}));
}

TEST(UpgradeOpset, AFailureLeavesTheModelAsItWas) {
  Model model =
      make_model({make_node("Clip", {"x"}, {"a"}, {{"min", 0.0F, {}}}), make_node("Tile", {"a", "a", "a"}, {"y"})}, {},
                 {make_value("x")}, {"y"}, 5);
  error_of(ErrorCode::Unsupported, [&] { upgrade_opset(model); });
  EXPECT_EQ(model.opset(), 5);
  EXPECT_EQ(model.graph.nodes[0].inputs.size(), 1U);
  EXPECT_TRUE(model.graph.initializers.empty());
}

TEST(UpgradeOpset, SubgraphsToo) {
  const auto inner = std::make_shared<Graph>(
      make_model({make_node("Squeeze", {"x"}, {"t"}, {{"axes", std::vector<int64_t>{0}, {}}})}, {}, {}, {"t"}).graph);
  const Model model = upgraded(make_node("If", {"c"}, {"y"}, {{"then_branch", inner, {}}}), 11,
                               {make_value("x", {1, 2}), make_value("c", {}, DType::Bool)});
  const auto branch = subgraphs(model.graph.nodes[0])[0];
  EXPECT_EQ(branch->initializers.size(), 1U);
  EXPECT_EQ(branch->nodes[0].inputs.size(), 2U);
  EXPECT_TRUE(inner->initializers.empty()) << "copies of the model share the old one";
}

TEST(UpgradeOpset, ScanOverABatchBecomesTwoScans) {
  const auto body =
      std::make_shared<Graph>(make_model({make_node("Add", {"s", "v"}, {"t"}), make_node("Identity", {"t"}, {"o"})}, {},
                                         {make_value("s"), make_value("v")}, {"t", "o"})
                                  .graph);
  const Model model =
      upgraded(make_node("Scan", {"", "h", "x"}, {"y", "z"}, {{"body", body, {}}, {"num_scan_inputs", int64_t{1}, {}}}),
               8, {make_value("h"), make_value("x")});
  const Node& outer = model.graph.nodes[0];
  EXPECT_EQ(outer.inputs, (std::vector<std::string>{"h", "x"}));
  EXPECT_EQ(outer.get_int("num_scan_inputs", 0), 2);
  const Node& inner = subgraphs(outer)[0]->nodes[0];
  EXPECT_EQ(inner.op, "Scan");
  EXPECT_EQ(inner.get_int("num_scan_inputs", 0), 1);
  EXPECT_EQ(subgraphs(inner)[0]->nodes[0].op, "Add");
}

TEST(UpgradeOpset, InitializersLeaveTheInputsWhereTheyBecomeDefaults) {
  const Model model =
      upgraded(make_node("Add", {"x", "w"}, {"y"}), 8, {make_value("x"), make_value("w")}, {make_counting("w", {1})});
  EXPECT_EQ(model.graph.inputs.size(), 1U);
}

TEST(UpgradeOpset, OtherDomainsAreLeftAlone) {
  Node node = make_node("Squeeze", {"x"}, {"y"}, {{"axes", std::vector<int64_t>{0}, {}}});
  node.domain = "com.example";
  EXPECT_EQ(upgraded(node, 9).graph.nodes[0].inputs.size(), 1U);
}

TEST(UpgradeRules, AreInOrderAndNotRepeated) {
  for (const auto& group : {upgrade::attribute_changes(), upgrade::broadcasting_changes(), upgrade::image_changes(),
                            upgrade::normalization_changes(), upgrade::scan_changes()}) {
    for (const upgrade::Change& change : group) {
      const std::vector<upgrade::Change>& all = upgrade::changes_of(change.op);
      const auto not_before = [](const upgrade::Change& a, const upgrade::Change& b) { return a.version >= b.version; };
      EXPECT_EQ(std::adjacent_find(all.begin(), all.end(), not_before), all.end()) << change.op;
      EXPECT_LE(change.version, kNewestKnownOpset);
    }
  }
}

}  // namespace
}  // namespace kaon
