#include "graph/graph.h"

#include "graph/build_test.h"

namespace kaon {
namespace {

TEST(Node, AttributesAreFoundByNameAndKind) {
  Node node =
      make_node("Conv", {}, {"y"}, {{"group", int64_t{4}, {}}, {"alpha", 0.5F, {}}, {"mode", std::string("a"), {}}});
  EXPECT_EQ(node.get_int("group", 1), 4);
  EXPECT_EQ(node.get_int("alpha", 1), 1) << "of another kind";
  EXPECT_EQ(node.get_float("alpha", 1), 0.5F);
  EXPECT_EQ(node.get_string("mode", ""), "a");
  node.set("group", int64_t{2});
  node.set("pads", std::vector<int64_t>{1, 2});
  EXPECT_EQ(node.get_int("group", 1), 2);
  EXPECT_EQ(node.get_ints("pads"), (std::vector<int64_t>{1, 2}));
  node.erase("group");
  EXPECT_EQ(node.find("group"), nullptr);
  EXPECT_EQ(node.attributes.size(), 3U);
}

TEST(Node, IsCalledByItsNameOrItsOutput) {
  Node node = make_node("Conv", {}, {"y"});
  EXPECT_EQ(node.label(), "Conv 'y'");
  node.name = "/c";
  node.domain = "com.microsoft";
  EXPECT_EQ(node.label(), "com.microsoft.Conv '/c'");
}

/// y = Relu(x) read by a branch of an If under the branch's own names.
Model with_branch() {
  const auto branch =
      std::make_shared<Graph>(make_model({make_node("Add", {"a", "inner"}, {"t"}), make_node("Neg", {"t"}, {"u"})},
                                         {make_counting("inner", {1})}, {}, {"u"})
                                  .graph);
  return make_model({make_node("Relu", {"x"}, {"a"}), make_node("If", {"c"}, {"y"}, {{"then_branch", branch, {}}})}, {},
                    {make_value("x"), make_value("c", {}, DType::Bool)}, {"y"});
}

TEST(Graph, CapturesAreWhatASubgraphDoesNotMake) {
  const Model model = with_branch();
  EXPECT_EQ(captured_values(*subgraphs(model.graph.nodes[1])[0]), (std::vector<std::string>{"a"}));
}

TEST(Uses, CountSubgraphsThroughTheirNode) {
  const Model model = with_branch();
  const Uses uses(model.graph);
  EXPECT_EQ(uses.producer("a"), 0);
  EXPECT_EQ(uses.producer("x"), -1);
  EXPECT_EQ(uses.consumers("a"), (std::vector<int64_t>{1}));
  EXPECT_TRUE(uses.consumers("t").empty());
  EXPECT_TRUE(uses.is_output("y"));
  EXPECT_FALSE(uses.is_output("a"));
}

TEST(FreshNames, AvoidNamesInSubgraphsAndTheirOwn) {
  FreshNames names(with_branch().graph);
  EXPECT_EQ(names.make("t"), "t_1");
  EXPECT_EQ(names.make("t"), "t_2");
  EXPECT_EQ(names.make("new"), "new");
  EXPECT_EQ(with_branch().graph.fresh_name("x"), "x_1");
}

TEST(EditSubgraphs, LeaveCopiesOfTheModelAlone) {
  Model model = with_branch();
  const Model copy = model;
  edit_subgraphs(model.graph.nodes[1], [](Graph& graph) { graph.name = "changed"; });
  EXPECT_EQ(subgraphs(model.graph.nodes[1])[0]->name, "changed");
  EXPECT_EQ(subgraphs(copy.graph.nodes[1])[0]->name, "g");
}

TEST(Graph, RequiredInputsHaveNoInitializer) {
  const Model model = make_model({}, {make_counting("w", {1})}, {make_value("x"), make_value("w")}, {});
  ASSERT_EQ(model.graph.required_inputs().size(), 1U);
  EXPECT_EQ(model.graph.required_inputs()[0].name, "x");
  EXPECT_NE(model.graph.find_initializer("w"), nullptr);
  EXPECT_EQ(model.graph.find_initializer("x"), nullptr);
}

}  // namespace
}  // namespace kaon
