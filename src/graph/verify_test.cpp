#include "graph/verify.h"

#include <fmt/format.h>

#include "graph/build_test.h"

namespace kaon {
namespace {

Model two_nodes() {
  return make_model({make_node("Relu", {"x"}, {"a"}), make_node("Add", {"a", "w"}, {"y"})}, {make_counting("w", {1})},
                    {make_value("x")}, {"y"});
}

void expect_rejected(const Model& model, const std::string& message) {
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { verify(model); }), message);
}

std::shared_ptr<Graph> branch(std::vector<Node> nodes, const std::string& output) {
  return std::make_shared<Graph>(make_model(std::move(nodes), {}, {}, {output}).graph);
}

TEST(Verify, AcceptsAGoodGraph) { EXPECT_NO_THROW(verify(two_nodes())); }

TEST(Verify, NamesTheNodeAndTheValue) {
  Model model = two_nodes();
  model.graph.nodes[1].inputs[1] = "missing";
  expect_rejected(model, "Add 'y': reads 'missing', which is no graph input, no initializer and no node's output");
  model = two_nodes();
  std::swap(model.graph.nodes[0], model.graph.nodes[1]);
  expect_rejected(model, "Add 'y': reads 'a' before Relu 'a' makes it");
  model = two_nodes();
  model.graph.nodes[0].inputs[0] = "a";
  expect_rejected(model, "Relu 'a': reads 'a', which it makes itself");
  model = two_nodes();
  model.graph.nodes[1].outputs[0] = "a";
  expect_rejected(model, "Add 'a': makes 'a', which exists already");
  model = two_nodes();
  model.graph.nodes[0].outputs[0] = "w";
  expect_rejected(model, "Relu 'w': makes 'w', which exists already");
  model = two_nodes();
  model.graph.nodes[1].op.clear();
  expect_rejected(model, " 'y': a node without an operator");
}

TEST(Verify, NamesWhatTheGraphRepeatsOrLacks) {
  Model model = two_nodes();
  model.graph.outputs.push_back(make_value("z"));
  expect_rejected(model, "graph 'g': output 'z' is made by no node, input or initializer");
  model = two_nodes();
  model.graph.inputs.push_back(make_value("x"));
  expect_rejected(model, "graph 'g': input 'x' is given twice");
  model = two_nodes();
  model.graph.initializers.push_back(make_counting("w", {1}));
  expect_rejected(model, "graph 'g': initializer 'w' is given twice");
  model = two_nodes();
  model.graph.nodes[0].attributes = {{"k", int64_t{1}, {}}, {"k", int64_t{2}, {}}};
  expect_rejected(model, "Relu 'a': attribute 'k' is given twice");
}

TEST(Verify, AnInitializerMayBeAnInputsDefault) {
  Model model = two_nodes();
  model.graph.inputs.push_back(make_value("w"));
  EXPECT_NO_THROW(verify(model));
}

TEST(Verify, OmittedInputsAndOutputsAreNoValues) {
  Model model = two_nodes();
  model.graph.nodes[0].inputs.push_back("");
  model.graph.nodes[0].outputs.push_back("");
  model.graph.nodes[1].outputs.push_back("");
  EXPECT_NO_THROW(verify(model));
}

TEST(Verify, SubgraphsSeeWhatIsMadeBefore) {
  Model model = two_nodes();
  model.graph.inputs.push_back(make_value("c", {}, DType::Bool));
  model.graph.nodes.insert(
      model.graph.nodes.begin() + 1,
      make_node("If", {"c"}, {"i"}, {{"then_branch", branch({make_node("Neg", {"a"}, {"t"})}, "t"), {}}}));
  EXPECT_NO_THROW(verify(model));
  std::swap(model.graph.nodes[0], model.graph.nodes[1]);
  expect_rejected(model, "Neg 't': reads 'a', which is no graph input, no initializer and no node's output");
}

TEST(SortNodes, OrdersWithinAndAroundSubgraphs) {
  Model model = two_nodes();
  model.graph.inputs.push_back(make_value("c", {}, DType::Bool));
  const auto inner = branch({make_node("Neg", {"s"}, {"t"}), make_node("Abs", {"a"}, {"s"})}, "t");
  model.graph.nodes.insert(model.graph.nodes.begin(), make_node("If", {"c"}, {"i"}, {{"then_branch", inner, {}}}));
  const Model shared = model;
  sort_nodes(model.graph);
  EXPECT_NO_THROW(verify(model));
  EXPECT_EQ(model.graph.nodes[0].op, "Relu");
  EXPECT_EQ(model.graph.nodes[1].op, "If");
  EXPECT_EQ(subgraphs(model.graph.nodes[1])[0]->nodes[0].op, "Abs");
  EXPECT_EQ(inner->nodes[0].op, "Neg") << "a copy of the model must keep its own order";
}

TEST(SortNodes, MovesNothingThatIsInOrder) {
  Model model = make_model({make_node("A", {"x"}, {"a"}), make_node("B", {"x"}, {"b"}), make_node("D", {"c"}, {"d"}),
                            make_node("C", {"x"}, {"c"}), make_node("E", {"x"}, {"e"})},
                           {}, {make_value("x")}, {"d"});
  sort_nodes(model.graph);
  std::string order;
  for (const Node& node : model.graph.nodes) order += node.op;
  EXPECT_EQ(order, "ABCDE");
}

TEST(SortNodes, TellsACycleTheWayTheDataFlows) {
  Model model = make_model({make_node("Relu", {"x"}, {"r"}), make_node("Add", {"r", "c"}, {"a"}),
                            make_node("Neg", {"a"}, {"b"}), make_node("Abs", {"b"}, {"c"})},
                           {}, {make_value("x")}, {"c"});
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { sort_nodes(model.graph); }),
            "Add 'a': the nodes form a cycle: Add 'a' → Neg 'b' → Abs 'c' → Add 'a'");
}

TEST(SortNodes, FindsALongCycleQuickly) {
  Model model = make_model({}, {}, {}, {});
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    model.graph.nodes.push_back(make_node("Relu", {fmt::format("v{}", (i + 1) % kCount)}, {fmt::format("v{}", i)}));
  }
  const std::string message = error_of(ErrorCode::InvalidInput, [&] { sort_nodes(model.graph); });
  EXPECT_LT(message.size(), 300U);
}

}  // namespace
}  // namespace kaon
