#include "engine/engine.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

constexpr DType kLong = DType::Int64;
constexpr DType kBool = DType::Bool;

std::shared_ptr<Graph> body(std::vector<Node> nodes, std::vector<ValueInfo> inputs, std::vector<ValueInfo> outputs) {
  auto graph = std::make_shared<Graph>();
  graph->name = "body";
  graph->nodes = std::move(nodes);
  graph->inputs = std::move(inputs);
  graph->outputs = std::move(outputs);
  return graph;
}

Node with_graph(Node node, const std::string& attribute, std::shared_ptr<Graph> graph) {
  node.set(attribute, std::move(graph));
  return node;
}

Tensor row(const std::vector<float>& values) { return Tensor::of<float>({std::ssize(values)}, values); }
std::vector<float> list(const Tensor& tensor) { return tensor.to_float(); }

TEST(Control, IfReadsValuesAroundIt) {
  Node node = make_node("If", {"c"}, {"y"});
  node = with_graph(node, "then_branch", body({make_node("Add", {"a", "x"}, {"t"})}, {}, {make_value("t", {2})}));
  // A branch that hands an outer value on as it is.
  node = with_graph(node, "else_branch", body({}, {}, {make_value("x", {2})}));
  Engine engine(make_model({make_node("Neg", {"x"}, {"a"}), node}, {},
                           {make_value("c", {}, kBool), make_value("x", {2})}, {"y"}));
  const auto run = [&](bool condition) {
    return list(engine.run({{"c", Tensor::scalar(condition)}, {"x", row({1, 2})}})[0]);
  };
  EXPECT_EQ(run(true), (std::vector<float>{0, 0}));
  EXPECT_EQ(run(false), (std::vector<float>{1, 2}));
}

/// s += x while s < limit; every s is collected.
Model summing_loop() {
  Node loop = make_node("Loop", {"m", "c", "s0"}, {"s", "all"});
  loop = with_graph(loop, "body",
                    body({make_node("Add", {"s_in", "x"}, {"s_out"}), make_node("Less", {"s_out", "limit"}, {"go"}),
                          make_node("Identity", {"s_out"}, {"seen"})},
                         {make_value("i", {}, kLong), make_value("go_in", {}, kBool), make_value("s_in", {1})},
                         {make_value("go", {1}, kBool), make_value("s_out", {1}), make_value("seen", {1})}));
  return make_model({loop}, {make_constant("limit", {1}, {10}), make_constant("s0", {1}, {0})},
                    {make_value("m", {}, kLong), make_value("c", {}, kBool), make_value("x", {1})}, {"s", "all"});
}

TEST(Control, LoopStopsByCountOrCondition) {
  Engine engine(summing_loop());
  const auto run = [&](int64_t trips, bool condition) {
    return engine.run({{"m", Tensor::scalar(trips)}, {"c", Tensor::scalar(condition)}, {"x", row({4})}});
  };
  EXPECT_EQ(list(run(2, true)[1]), (std::vector<float>{4, 8}));
  EXPECT_EQ(list(run(100, true)[0]), std::vector<float>{12});
  EXPECT_EQ(run(100, true)[1].shape(), (Shape{3, 1}));
  for (const auto& none : {run(0, true), run(5, false)}) {
    EXPECT_EQ(list(none[0]), std::vector<float>{0});
    EXPECT_EQ(none[1].shape(), (Shape{0, 1}));
  }
}

TEST(Control, LoopWithoutAnEndIsStopped) {
  const auto engine_of = [](Node keeps) {
    Node loop = make_node("Loop", {"m", "c", "x"}, {"y"});
    loop = with_graph(loop, "body",
                      body({std::move(keeps), make_node("Neg", {"v"}, {"w"})},
                           {make_value("i", {}, kLong), make_value("go_in", {}, kBool), make_value("v", {1})},
                           {make_value("go", {}, kBool), make_value("w", {1})}));
    return Engine(
        make_model({loop}, {}, {make_value("m", {}, kLong), make_value("c", {}, kBool), make_value("x", {1})}, {"y"}));
  };
  const auto run = [](Engine& engine, int64_t trips) {
    return engine.run({{"m", Tensor::scalar(trips)}, {"c", Tensor::scalar(true)}, {"x", row({4})}});
  };
  const auto says = [&](Engine& engine, const std::string& words) {
    const std::string message = error_of(ErrorCode::InvalidInput, [&] { run(engine, int64_t{1} << 62); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  Engine counted = engine_of(make_node("Identity", {"go_in"}, {"go"}));
  EXPECT_EQ(list(run(counted, 3)[0]), std::vector<float>{-4});
  says(counted, "asks for 4611686018427387904 iterations; at most 699050 are run");
  Engine conditional = engine_of(make_node("Or", {"go_in", "go_in"}, {"go"}));
  says(conditional, "after 699050 iterations");
}

TEST(Control, LoopInALoopSeesBothScopes) {
  // for i < 3: for j < 2: s += i + x
  Node inner = make_node("Loop", {"two", "", "s_in"}, {"s_next"});
  inner = with_graph(
      inner, "body",
      body({make_node("Cast", {"i"}, {"f"}, {{"to", int64_t{1}, {}}}), make_node("Add", {"f", "x"}, {"step"}),
            make_node("Add", {"t_in", "step"}, {"t_out"}), make_node("Identity", {"c_in"}, {"c_out"})},
           {make_value("j", {}, kLong), make_value("c_in", {}, kBool), make_value("t_in")},
           {make_value("c_out", {}, kBool), make_value("t_out")}));
  Node outer = make_node("Loop", {"three", "", "s0"}, {"s"});
  outer = with_graph(outer, "body",
                     body({inner, make_node("Identity", {"d_in"}, {"d_out"})},
                          {make_value("i", {}, kLong), make_value("d_in", {}, kBool), make_value("s_in")},
                          {make_value("d_out", {}, kBool), make_value("s_next")}));
  Engine engine(make_model({outer}, {make_constant("s0", {}, {0})},
                           {make_value("x"), make_value("two", {}, kLong), make_value("three", {}, kLong)}, {"s"}));
  const auto run = [&](int64_t two, int64_t three) {
    return engine.run({{"x", Tensor::scalar(0.5F)}, {"two", Tensor::scalar(two)}, {"three", Tensor::scalar(three)}});
  };
  EXPECT_EQ(list(run(2, 3)[0]), std::vector<float>{9});
  const std::string message = error_of(ErrorCode::InvalidInput, [&] { run(int64_t{1} << 15, int64_t{1} << 15); });
  EXPECT_NE(message.find("asks for 1073741824 iterations"), std::string::npos) << message;
  EXPECT_EQ(list(run(2, 3)[0]), std::vector<float>{9});
}

Node running_sum(std::vector<std::string> inputs, std::vector<Attribute> attributes) {
  attributes.push_back({"num_scan_inputs", int64_t{1}, {}});
  Node scan = make_node("Scan", std::move(inputs), {"last", "all"}, std::move(attributes));
  return with_graph(
      scan, "body",
      body({make_node("Add", {"s_in", "e"}, {"s_out"}), make_node("Identity", {"s_out"}, {"seen"})},
           {make_value("s_in", {2}), make_value("e", {2})}, {make_value("s_out", {2}), make_value("seen", {2})}));
}

TEST(Control, ScanBackwardsAlongAnotherAxis) {
  const std::vector<int64_t> one{1}, minus{-1};
  const Node scan = running_sum({"s0", "x"}, {{"scan_input_axes", one, {}},
                                              {"scan_input_directions", one, {}},
                                              {"scan_output_axes", minus, {}},
                                              {"scan_output_directions", one, {}}});
  Engine engine(make_model({scan}, {make_constant("s0", {2}, {0, 100})}, {make_value("x", {2, 3})}, {"last", "all"}));
  const std::vector<Tensor> y = engine.run({{"x", Tensor::of<float>({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6})}});
  EXPECT_EQ(list(y[0]), (std::vector<float>{6, 115}));
  EXPECT_EQ(y[1].shape(), (Shape{2, 3}));
  EXPECT_EQ(list(y[1]), (std::vector<float>{6, 5, 3, 115, 111, 106}));
}

TEST(Control, BatchedScanPadsShortSequences) {
  const Node scan = running_sum({"lengths", "s0", "x"}, {});
  const Tensor lengths = Tensor::of<int64_t>({2}, std::vector<int64_t>{2, 1});
  Engine engine(make_model({scan}, {make_constant("s0", {2, 2}, {0, 0, 10, 20}), {"lengths", lengths, {}, {}}},
                           {make_value("x", {2, 2, 2})}, {"last", "all"}, 8));
  const std::vector<Tensor> y =
      engine.run({{"x", Tensor::of<float>({2, 2, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8})}});
  EXPECT_EQ(list(y[0]), (std::vector<float>{4, 6, 15, 26}));
  EXPECT_EQ(y[1].shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(list(y[1]), (std::vector<float>{1, 2, 4, 6, 15, 26, 0, 0}));
}

TEST(Control, MisfitBodiesFail) {
  Node node = make_node("If", {"c"}, {"y"});
  node = with_graph(node, "then_branch", body({}, {}, {}));
  node = with_graph(node, "else_branch", body({}, {}, {make_value("x", {2})}));
  const Model model = make_model({node}, {}, {make_value("c", {}, kBool), make_value("x", {2})}, {"y"});
  error_of(ErrorCode::InvalidInput, [&] { const Engine engine(model); });
  Node scan = running_sum({"s0", "x"}, {});
  scan.set("num_scan_inputs", int64_t{5});
  const Model scanning = make_model({scan}, {}, {make_value("s0", {2}), make_value("x", {3, 2})}, {"last", "all"});
  error_of(ErrorCode::InvalidInput, [&] { const Engine engine(scanning); });
  // An unsupported node inside a body is listed like any other.
  Node strange = make_node("If", {"c"}, {"y"});
  strange =
      with_graph(strange, "then_branch", body({make_node("Frobnicate", {"x"}, {"t"})}, {}, {make_value("t", {2})}));
  strange = with_graph(strange, "else_branch", body({}, {}, {make_value("x", {2})}));
  const Model inner = make_model({strange}, {}, {make_value("c", {}, kBool), make_value("x", {2})}, {"y"});
  EXPECT_NE(error_of(ErrorCode::Unsupported, [&] { const Engine engine(inner); }).find("Frobnicate"),
            std::string::npos);
}

}  // namespace
}  // namespace kaon
