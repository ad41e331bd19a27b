#include "graph/extract.h"

#include <gtest/gtest.h>

#include "graph/build_test.h"

namespace kaon {
namespace {

/// a = x·w; b = relu(a); c = b + x; d = c·v
Model block() {
  Model model = make_model({make_node("MatMul", {"x", "w"}, {"a"}), make_node("Relu", {"a"}, {"b"}),
                            make_node("Add", {"b", "x"}, {"c"}), make_node("MatMul", {"c", "v"}, {"d"})},
                           {make_counting("w", {2, 2}), make_counting("v", {2, 2})}, {make_value("x", {1, 2})}, {"d"});
  model.graph.values = {make_value("a", {1, 2}), make_value("c", {1, 2})};
  return model;
}

std::vector<std::string> ops(const Model& model) {
  std::vector<std::string> found;
  for (const Node& node : model.graph.nodes) found.push_back(node.op);
  return found;
}

std::vector<std::string> constants(const Model& model) {
  std::vector<std::string> found;
  for (const Initializer& initializer : model.graph.initializers) found.push_back(initializer.name);
  return found;
}

TEST(Extract, KeepsWhatLiesBetween) {
  const Model whole = block();
  const Model layer = extract(whole, {"x"}, {"b"});
  EXPECT_EQ(ops(layer), (std::vector<std::string>{"MatMul", "Relu"}));
  EXPECT_EQ(constants(layer), (std::vector<std::string>{"w"}));
  EXPECT_EQ(layer.opset(), 17);
  EXPECT_EQ(layer.graph.values.size(), 1U);
  // The constants are shared with the whole model, not copied.
  EXPECT_EQ(layer.graph.initializers[0].tensor.bytes().data(), whole.graph.initializers[0].tensor.bytes().data());

  const Model tail = extract(whole, {"x", "b"}, {"d", "c"});
  EXPECT_EQ(ops(tail), (std::vector<std::string>{"Add", "MatMul"}));
  ASSERT_EQ(tail.graph.inputs.size(), 2U);
  EXPECT_EQ(tail.graph.inputs[0].shape->size(), 2U);
  EXPECT_EQ(tail.graph.inputs[1].name, "b");
  EXPECT_EQ(tail.graph.inputs[1].shape, std::nullopt);
  EXPECT_EQ(tail.graph.outputs[1].name, "c");
}

TEST(Extract, AConstantMayBecomeAnInput) {
  const Model layer = extract(block(), {"x", "w"}, {"a"});
  EXPECT_TRUE(layer.graph.initializers.empty());
  EXPECT_EQ(layer.graph.inputs[1].type, DType::Float32);
  EXPECT_EQ(layer.graph.inputs[1].shape->at(0).value, 2);
  EXPECT_EQ(layer.graph.required_inputs().size(), 2U);
}

TEST(Extract, SaysWhatIsWrong) {
  const Model model = block();
  const auto message = [&](std::vector<std::string> inputs, std::vector<std::string> outputs) {
    return error_of(ErrorCode::InvalidInput, [&] { extract(model, inputs, outputs); });
  };
  EXPECT_EQ(message({"q"}, {"b"}), "input 'q': the model has no value of this name");
  EXPECT_EQ(message({"x"}, {"q"}), "output 'q': the model has no value of this name");
  EXPECT_EQ(message({"b"}, {"d"}),
            "output 'd': depends on 'x', an input of the model that the inputs of the part do not cut off");
  EXPECT_EQ(message({"x", "c"}, {"b"}), "input 'c': none of the outputs depends on it");
  EXPECT_EQ(message({"x"}, {"w"}), "output 'w': no node makes it: it is a constant of the model");
  EXPECT_EQ(message({"x"}, {"x"}), "output 'x': no node makes it: it is an input of the model");
  EXPECT_EQ(message({"b"}, {"b"}), "output 'b': is among the inputs too");
  EXPECT_EQ(message({"x"}, {}), "outputs: at least one is needed");
}

TEST(Extract, FollowsSubgraphsAndSiblings) {
  const auto branch = std::make_shared<Graph>(make_model({make_node("Add", {"p", "k"}, {"t"})}, {}, {}, {"t"}).graph);
  const Model model =
      make_model({make_node("Split", {"x"}, {"p", "q"}),
                  make_node("If", {"flag"}, {"y"}, {{"then_branch", branch, {}}}), make_node("Add", {"q", "y"}, {"z"})},
                 {make_counting("k", {1})}, {make_value("x", {2}), make_value("flag", {}, DType::Bool)}, {"z"});
  const Model part = extract(model, {"p", "flag"}, {"y"});
  EXPECT_EQ(ops(part), (std::vector<std::string>{"If"}));
  EXPECT_EQ(constants(part), (std::vector<std::string>{"k"}));
  // Split makes q, which is needed, and p, which is given.
  const Model both = extract(model, {"x", "p", "flag"}, {"z"});
  EXPECT_EQ(ops(both), (std::vector<std::string>{"Split", "If", "Add"}));
  EXPECT_EQ(both.graph.nodes[0].outputs, (std::vector<std::string>{"p_unused", "q"}));
}

}  // namespace
}  // namespace kaon
