#include "graph/layer.h"

#include <fmt/format.h>

#include "graph/build_test.h"

namespace kaon {
namespace {

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const Layer& layer : layers(model.graph)) names.push_back(layer.name);
  return names;
}

Node named(Node node, std::string name) {
  node.name = std::move(name);
  return node;
}

TEST(Layer, ConvHasItsFourSlots) {
  const Model model = make_model({make_node("Conv", {"x", "w", "b"}, {"y"})},
                                 {make_counting("w", {2, 1, 3, 3}), make_counting("b", {2})}, {make_value("x")}, {"y"});
  const std::vector<Layer> found = layers(model.graph);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].op, "Conv");
  EXPECT_EQ(found[0].value(Slot::Input), "x");
  EXPECT_EQ(found[0].value(Slot::Weight), "w");
  EXPECT_EQ(found[0].value(Slot::Bias), "b");
  EXPECT_EQ(found[0].value(Slot::Output), "y");
  EXPECT_EQ(found[0].weight_shape, (Shape{2, 1, 3, 3}));
  EXPECT_EQ(found[0].slots().size(), 4U);
  EXPECT_EQ(found[0].name, "y") << "neither the weight nor the node has a name to go by";
}

TEST(Layer, NamesComeFromWeightNodeOutput) {
  const auto name = [](const std::string& weight, const std::string& node) {
    return names_of(make_model({named(make_node("Conv", {"x", weight}, {"out"}), node)},
                               {make_counting(weight, {1, 1, 1, 1})}, {make_value("x")}, {"out"}))
        .at(0);
  };
  EXPECT_EQ(name("model.layers.0.mlp.down_proj.weight", "/a/Conv"), "model.layers.0.mlp.down_proj");
  EXPECT_EQ(name("onnx::Conv_12", "/layer1/layer1.0/conv1/Conv"), "layer1.layer1.0.conv1");
  EXPECT_EQ(name("w", "/layer1/Conv_1"), "layer1.Conv_1");
  EXPECT_EQ(name("w", "/Conv"), "Conv");
  EXPECT_EQ(name("w", "Conv_7"), "Conv_7");
  EXPECT_EQ(name(".weight", "n"), "n");
  EXPECT_EQ(name("w", ""), "out");
}

TEST(Layer, RepeatedNamesAreNumbered) {
  std::vector<Node> nodes;
  for (const char* name : {"c", "c", "c#2", "c"}) {
    nodes.push_back(named(make_node("Conv", {"x", "w"}, {fmt::format("y{}", nodes.size())}), name));
  }
  const Model model = make_model(nodes, {make_counting("w", {1, 1, 1, 1})}, {make_value("x")}, {"y0"});
  EXPECT_EQ(names_of(model), (std::vector<std::string>{"c", "c#3", "c#2", "c#4"}));
}

TEST(Layer, MatMulTakesTheAddBehindItAsBias) {
  Model model = make_model({make_node("MatMul", {"x", "w"}, {"m"}), make_node("Add", {"b", "m"}, {"y"})},
                           {make_counting("w", {3, 2}), make_counting("b", {2})}, {make_value("x")}, {"y"});
  const Layer layer = layers(model.graph).at(0);
  EXPECT_EQ(layer.bias, "b");
  EXPECT_EQ(layer.node, "m");
  EXPECT_EQ(layer.bias_node, "y");
  EXPECT_EQ(layer.output, "y");
  // Not when the sum is wider than a bias, or somebody else reads the product.
  model.graph.initializers[1] = make_counting("b", {3, 2});
  EXPECT_EQ(layers(model.graph).at(0).bias, "");
  EXPECT_EQ(layers(model.graph).at(0).output, "m");
  model.graph.initializers[1] = make_counting("b", {2});
  model.graph.outputs.push_back(make_value("m"));
  EXPECT_EQ(layers(model.graph).at(0).bias_node, "");
}

TEST(Layer, MatMulMayHaveItsWeightOnTheLeft) {
  const Model model = make_model({make_node("MatMul", {"w", "x"}, {"y"}), make_node("MatMul", {"x", "x"}, {"z"}),
                                  make_node("MatMul", {"x", "v"}, {"u"})},
                                 {make_counting("w", {3, 2}), make_counting("v", {2})}, {make_value("x")}, {"y"});
  const std::vector<Layer> found = layers(model.graph);
  ASSERT_EQ(found.size(), 1U) << "no layer without a constant, nor with a mere vector";
  EXPECT_EQ(found[0].weight_input, 0U);
  EXPECT_EQ(found[0].input, "x");
}

TEST(Layer, FindsConstantsBehindOperators) {
  Initializer codes{"fc.weight", Tensor::of({2, 3}, std::vector<int8_t>{1, 2, 3, 4, 5, 6}), {}, {}};
  const Model model =
      make_model({make_node("DequantizeLinear", {"fc.weight", "s"}, {"d"}),
                  make_node("Transpose", {"d"}, {"t"}, {{"perm", std::vector<int64_t>{1, 0}, {}}}),
                  make_node("Identity", {"t"}, {"i"}), make_node("Gemm", {"x", "i", "c"}, {"y"}),
                  make_node("Constant", {}, {"c"}, {{"value", Tensor::of({2}, std::vector<float>{1, 2}), {}}})},
                 {codes, make_constant("s", {}, {0.5F})}, {make_value("x")}, {"y"});
  const Layer layer = layers(model.graph).at(0);
  EXPECT_EQ(layer.name, "fc");
  EXPECT_EQ(layer.weight, "i");
  EXPECT_EQ(layer.weight_shape, (Shape{3, 2}));
  EXPECT_EQ(layer.bias, "c");
}

TEST(Layer, GatherOfATableReadsNoInput) {
  const Initializer integers{"n", Tensor::of({2, 1}, std::vector<int64_t>{1, 2}), {}, {}};
  const Model model =
      make_model({make_node("Gather", {"embed.weight", "ids"}, {"e"}), make_node("Gather", {"n", "ids"}, {"f"}),
                  make_node("Gather", {"embed.weight", "ids"}, {"g"}, {{"axis", int64_t{1}, {}}})},
                 {make_counting("embed.weight", {4, 2}), integers}, {make_value("ids", {1}, DType::Int64)}, {"e"});
  const std::vector<Layer> found = layers(model.graph);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].name, "embed");
  EXPECT_EQ(found[0].slots(), (std::vector<Slot>{Slot::Weight, Slot::Output}));
  EXPECT_EQ(name_of(found[0].slots()[1]), "output");
}

TEST(Layer, SurvivesAVeryLongChainOfIdentities) {
  Model model = make_model({}, {make_counting("v0", {1, 1})}, {make_value("x")}, {});
  for (int i = 0; i < 200000; ++i) {
    model.graph.nodes.push_back(make_node("Identity", {fmt::format("v{}", i)}, {fmt::format("v{}", i + 1)}));
  }
  model.graph.nodes.push_back(make_node("MatMul", {"x", "v200000"}, {"y"}));
  EXPECT_TRUE(layers(model.graph).empty());
}

TEST(Layer, RecurrentNodesAreTwoLayersOfOneWeightEach) {
  const Model model = make_model(
      {named(make_node("LSTM", {"x", "w", "r", "b"}, {"y"}, {{"hidden_size", int64_t{2}, {}}}), "/rnn/LSTM")},
      {make_counting("w", {1, 8, 3}), make_counting("r", {1, 8, 2}), make_counting("b", {1, 16})}, {make_value("x")},
      {"y"});
  const std::vector<Layer> found = layers(model.graph);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "rnn.W");
  EXPECT_EQ(found[1].name, "rnn.R");
  EXPECT_EQ(found[0].weight, "w");
  EXPECT_EQ(found[1].weight, "r");
  EXPECT_EQ(found[1].weight_input, 2U);
  for (const Layer& layer : found) EXPECT_EQ(layer.slots(), std::vector<Slot>{Slot::Weight});
}

TEST(Layer, ThoseInsideSubgraphsAreFoundWithTheirWeightsAlone) {
  const auto inside = [](const char* weight, std::vector<Initializer> initializers) {
    return std::make_shared<Graph>(
        make_model({named(make_node("MatMul", {"x", weight}, {"z"}), "/in/MatMul")}, std::move(initializers), {}, {"z"})
            .graph);
  };
  const Model model = make_model({make_node("Relu", {"c"}, {"d"}),
                                  make_node("If", {"d"}, {"y"},
                                            {{"then_branch", inside("outer.weight", {}), {}},
                                             {"else_branch", inside("own", {make_counting("own", {2, 3})}), {}}})},
                                 {make_counting("outer.weight", {2, 3})}, {make_value("x"), make_value("c")}, {"y"});
  const std::vector<Layer> found = layers(model.graph);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "outer");
  EXPECT_EQ(found[1].name, "in");
  for (const Layer& layer : found) {
    EXPECT_EQ(layer.node, "y");
    ASSERT_NE(layer.inner, nullptr);
    EXPECT_EQ(node_of(model.graph, layer).op, "MatMul");
    EXPECT_EQ(layer.slots(), std::vector<Slot>{Slot::Weight});
  }
}

}  // namespace
}  // namespace kaon
