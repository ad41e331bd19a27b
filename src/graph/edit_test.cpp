#include "graph/edit.h"

#include <gtest/gtest.h>

#include "graph/build_test.h"
#include "graph/verify.h"

namespace kaon {
namespace {

/// a = x·w; b = relu(a); c = a + b; d = c·w
Model model_to_edit() {
  return make_model({make_node("MatMul", {"x", "w"}, {"a"}), make_node("Relu", {"a"}, {"b"}),
                     make_node("Add", {"a", "b"}, {"c"}), make_node("MatMul", {"c", "w"}, {"d"})},
                    {make_counting("w", {2, 2})}, {make_value("x", {1, 2})}, {"d"});
}

/// "Op(inputs)->outputs" of each node.
std::vector<std::string> list(const Graph& graph) {
  std::vector<std::string> lines;
  for (const Node& node : graph.nodes) {
    lines.push_back(fmt::format("{}({})->{}", node.op, fmt::join(node.inputs, ","), fmt::join(node.outputs, ",")));
  }
  return lines;
}

TEST(GraphEdit, NodesKeepTheirIdsWhateverComes) {
  Model model = model_to_edit();
  GraphEdit edit(model.graph);
  EXPECT_EQ(edit.readers_of("a"), (std::vector<Reader>{{"b", 0}, {"c", 0}}));
  // Everyone sees what Neg makes of a; then only the Add sees Abs of that.
  edit.rename("a", "a_raw");
  edit.insert_behind("a", make_node("Neg", {"a_raw"}, {"a"}));
  edit.insert_behind("a", make_node("Abs", {"a"}, {"a_abs"}));
  edit.redirect({{"c", 0}}, "a_abs");
  EXPECT_EQ(edit.readers_of("a"), (std::vector<Reader>{{"b", 0}}));
  edit.insert_behind("x", make_node("Exp", {"x"}, {"x_exp"}));
  edit.redirect({{"a", 0}}, "x_exp");
  edit.insert_before({{"d", 1}, {"a", 1}}, make_node("Identity", {"w"}, {"w_same"}));
  edit.redirect({{"d", 1}, {"a", 1}}, "w_same");
  edit.replace("b", {make_node("Neg", {"a"}, {"t"}), make_node("Neg", {"t"}, {"b"})});
  edit.finish();
  EXPECT_EQ(
      list(model.graph),
      (std::vector<std::string>{"Exp(x)->x_exp", "Identity(w)->w_same", "MatMul(x_exp,w_same)->a_raw", "Neg(a_raw)->a",
                                "Abs(a)->a_abs", "Neg(a)->t", "Neg(t)->b", "Add(a_abs,b)->c", "MatMul(c,w_same)->d"}));
  verify(model);
}

TEST(GraphEdit, EqualConstantsAreStoredOnce) {
  Model model = model_to_edit();
  GraphEdit edit(model.graph);
  EXPECT_EQ(edit.scalar(2), edit.scalar(2));
  const Tensor one = Tensor::scalar(1.0F);
  EXPECT_EQ(edit.constant("k", one), "k");
  EXPECT_EQ(edit.constant("other", one), "k");
  EXPECT_EQ(edit.constant("k", one.reshaped({1})), "k_1");
  EXPECT_EQ(edit.own_constant("k", one), "k_2");
  EXPECT_EQ(model.graph.initializers.size(), 5U);
  EXPECT_EQ(edit.make("Neg", {"x"}, "a", "b").outputs[0], "a_b");
}

TEST(GraphEdit, UnknownIdsAreErrors) {
  Model model = model_to_edit();
  GraphEdit edit(model.graph);
  EXPECT_NE(error_of(ErrorCode::Internal, [&] { edit.node("q"); }).find("'q'"), std::string::npos);
  error_of(ErrorCode::InvalidInput, [&] { node_by_id(model.graph, "x"); });
  EXPECT_EQ(node_by_id(model.graph, "c").op, "Add");
}

TEST(GraphEdit, ConstantsThatNobodyReadsGo) {
  Model model = model_to_edit();
  model.graph.initializers.push_back(make_counting("unread", {3}));
  model.graph.initializers.push_back(make_counting("inside", {3}));
  model.graph.initializers.push_back(make_counting("out", {3}));
  model.graph.inputs.push_back(make_value("unread", {3}));
  model.graph.outputs.push_back(make_value("out", {3}));
  const auto branch = std::make_shared<Graph>(make_model({make_node("Neg", {"inside"}, {"t"})}, {}, {}, {"t"}).graph);
  model.graph.nodes.push_back(make_node("If", {"d"}, {"e"}, {{"then_branch", branch, {}}}));
  drop_unread_constants(model.graph);
  std::vector<std::string> left;
  for (const Initializer& initializer : model.graph.initializers) left.push_back(initializer.name);
  EXPECT_EQ(left, (std::vector<std::string>{"w", "inside", "out"}));
  EXPECT_EQ(model.graph.inputs.size(), 1U);
}

TEST(Node, IsKnownByItsFirstOutput) {
  EXPECT_EQ(node_id(make_node("LSTM", {"x"}, {"", "h"})), "h");
  EXPECT_EQ(node_id(make_node("Print", {"x"}, {})), "");
}

}  // namespace
}  // namespace kaon
