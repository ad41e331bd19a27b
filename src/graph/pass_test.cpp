#include "graph/pass.h"

#include <algorithm>
#include <cmath>

#include "graph/build_test.h"
#include "graph/verify.h"

namespace kaon {
namespace {

/// Runs one pass alone; gives what it reported to have changed.
int64_t run_only(const std::string& name, Model& model, const PassContext& context = {}) {
  PassOptions options;
  for (const Pass& pass : standard_passes()) {
    if (pass.name != name) options.disabled.push_back(pass.name);
  }
  const std::vector<PassReport> reports = run_passes(model, context, options);
  EXPECT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].name, name);
  EXPECT_NO_THROW(verify(model));
  return reports[0].changes;
}

std::string ops_of(const Graph& graph) {
  std::string ops;
  for (const Node& node : graph.nodes) ops += (ops.empty() ? "" : " ") + node.op;
  return ops;
}

std::shared_ptr<Graph> branch(std::vector<Node> nodes, std::vector<std::string> outputs) {
  return std::make_shared<Graph>(make_model(std::move(nodes), {}, {}, std::move(outputs)).graph);
}

TEST(RunPasses, ReportsEachAndRefusesUnknownNames) {
  Model model = make_model({make_node("Relu", {"x"}, {"y"})}, {}, {make_value("x")}, {"y"});
  EXPECT_EQ(run_passes(model).size(), standard_passes().size());
  PassOptions options;
  options.disabled = {"fold_batchnorm"};
  EXPECT_EQ(error_of(ErrorCode::InvalidInput, [&] { run_passes(model, {}, options); }),
            "fold_batchnorm: unknown pass; did you mean 'fold_batch_norm'?");
}

TEST(RunPasses, SaysWhichPassBrokeTheGraph) {
  // Broken from the start, but the first pass that changes something is where it shows.
  Model model = make_model({make_node("Identity", {"x"}, {"a"}), make_node("Relu", {"missing"}, {"y"})}, {},
                           {make_value("x")}, {"y"});
  EXPECT_EQ(error_of(ErrorCode::Internal, [&] { run_passes(model); }),
            "pass eliminate_identity: left a broken graph: Relu 'y': reads 'missing', which is no graph input, no "
            "initializer and no node's output");
}

TEST(ConstantsToInitializers, TakesEveryKind) {
  Model model =
      make_model({make_node("Constant", {}, {"a"}, {{"value", Tensor::of({2}, std::vector<float>{1, 2}), {}}}),
                  make_node("Constant", {}, {"b"}, {{"value_ints", std::vector<int64_t>{3, 4}, {}}}),
                  make_node("Constant", {}, {"c"}, {{"value_float", 5.0F, {}}}),
                  make_node("Constant", {}, {"s"}, {{"sparse_value", OpaqueAttribute{}, {}}}),
                  make_node("Constant", {}, {"o"}, {{"value_int", int64_t{6}, {}}}),
                  make_node("Any", {"a", "b", "c", "s"}, {"y"})},
                 {}, {}, {"y", "o"});
  EXPECT_EQ(run_only("constants_to_initializers", model), 3);
  EXPECT_EQ(ops_of(model.graph), "Constant Constant Any") << "the sparse one and the graph's output stay";
  EXPECT_EQ(model.graph.find_initializer("b")->tensor.to_int64(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(model.graph.find_initializer("c")->tensor.rank(), 0);
}

TEST(EliminateIdentity, JoinsWhatTheCopySeparated) {
  Model model = make_model(
      {make_node("Identity", {"x"}, {"a"}), make_node("Identity", {"a"}, {"b"}), make_node("Relu", {"b"}, {"c"}),
       make_node("Dropout", {"c"}, {"d"}), make_node("Neg", {"c"}, {"n"}), make_node("Identity", {"d"}, {"y"})},
      {}, {make_value("x")}, {"y", "n"});
  EXPECT_EQ(run_only("eliminate_identity", model), 4);
  EXPECT_EQ(ops_of(model.graph), "Relu Neg");
  EXPECT_EQ(model.graph.nodes[0].inputs[0], "x");
  EXPECT_EQ(model.graph.nodes[0].outputs[0], "y") << "outputs keep their names";
  EXPECT_EQ(model.graph.nodes[1].inputs[0], "y");
}

TEST(EliminateIdentity, KeepsACopyOfAnInputAndASecondOutput) {
  Model model = make_model({make_node("Identity", {"x"}, {"y"}), make_node("Relu", {"x"}, {"r"}),
                            make_node("Identity", {"r"}, {"z"}), make_node("Identity", {"r"}, {"u"})},
                           {}, {make_value("x")}, {"y", "z", "u"});
  EXPECT_EQ(run_only("eliminate_identity", model), 1);
  EXPECT_EQ(ops_of(model.graph), "Identity Relu Identity");
  EXPECT_EQ(model.graph.nodes[2].inputs[0], "z");
}

TEST(EliminateIdentity, KeepsDropoutThatTrainsOrWhoseMaskIsRead) {
  const Initializer on{"on", Tensor::scalar(true), {}, {}}, off{"off", Tensor::scalar(false), {}, {}};
  Model model = make_model({make_node("Dropout", {"x", "", "on"}, {"a"}), make_node("Dropout", {"a", "", "off"}, {"b"}),
                            make_node("Dropout", {"b"}, {"c", "mask"}), make_node("Any", {"c", "mask"}, {"y"})},
                           {on, off}, {make_value("x")}, {"y"});
  EXPECT_EQ(run_only("eliminate_identity", model), 1);
  EXPECT_EQ(ops_of(model.graph), "Dropout Dropout Any");
}

TEST(EliminateIdentity, RenamesWhatSubgraphsRead) {
  Model model = make_model(
      {make_node("Identity", {"x"}, {"a"}),
       make_node("If", {"c"}, {"y"}, {{"then_branch", branch({make_node("Neg", {"a"}, {"t"})}, {"t"}), {}}})},
      {}, {make_value("x"), make_value("c", {}, DType::Bool)}, {"y"});
  const Model before = model;
  EXPECT_EQ(run_only("eliminate_identity", model), 1);
  EXPECT_EQ(subgraphs(model.graph.nodes[0])[0]->nodes[0].inputs[0], "x");
  EXPECT_NO_THROW(verify(before)) << "copies of the model are not touched";
}

TEST(EliminateIdentity, LeavesNamesThatASubgraphHasForItself) {
  Model model = make_model(
      {make_node("Identity", {"x"}, {"a"}),
       make_node("If", {"c"}, {"y"}, {{"then_branch", branch({make_node("Relu", {"a"}, {"x"})}, {"x"}), {}}})},
      {}, {make_value("x"), make_value("c", {}, DType::Bool)}, {"y"});
  EXPECT_EQ(run_only("eliminate_identity", model), 0);
}

TEST(RemoveDeadNodes, KeepsWhatOutputsAndBranchesNeed) {
  Model model = make_model(
      {make_node("Relu", {"x"}, {"captured"}), make_node("Relu", {"x"}, {"only_for_dead"}),
       make_node("Neg", {"only_for_dead", ""}, {"", "dead"}),
       make_node("If", {"c"}, {"y"},
                 {{"then_branch",
                   branch({make_node("Abs", {"captured"}, {"t"}), make_node("Abs", {"w"}, {"unused"})}, {"t"}),
                   {}}})},
      {make_counting("w", {1}), make_counting("v", {1})}, {make_value("x"), make_value("c"), make_value("v")}, {"y"});
  model.graph.values = {make_value("captured"), make_value("only_for_dead")};
  EXPECT_EQ(run_only("remove_dead_nodes", model), 5);
  EXPECT_EQ(ops_of(model.graph), "Relu If");
  EXPECT_TRUE(model.graph.initializers.empty()) << "'w' was read by a dead node of the branch alone";
  EXPECT_EQ(model.graph.inputs.size(), 2U) << "'v' without its initializer would be a required input";
  ASSERT_EQ(model.graph.values.size(), 1U);
  EXPECT_EQ(model.graph.values[0].name, "captured");
}

/// Adds floats; knows nothing else.
PassContext adding() {
  PassContext context;
  context.evaluate = [](const Node& node, const Model&, std::span<const Tensor> inputs) -> std::vector<Tensor> {
    if (node.op == "ConstantOfShape") {
      const Shape shape = inputs[0].to_int64();
      return {Tensor::of(shape, std::vector<float>(static_cast<size_t>(element_count(shape))))};
    }
    if (node.op != "Add") fail(ErrorCode::Unsupported, node.label(), "no such operator");
    return {Tensor::of({1}, std::vector<float>{inputs[0].to_float()[0] + inputs[1].to_float()[0]})};
  };
  return context;
}

TEST(ConstantFolding, FoldsChainsAlsoInBranches) {
  Model model = make_model(
      {make_node("Add", {"w", "w"}, {"a"}), make_node("Add", {"a", "w"}, {"b"}), make_node("Mul", {"x", "b"}, {"m"}),
       make_node(
           "If", {"c"}, {"y"},
           {{"then_branch", branch({make_node("Add", {"b", "w"}, {"t"}), make_node("Neg", {"t"}, {"u"})}, {"u"}), {}}}),
       make_node("Add", {"w", "w"}, {"z"})},
      {make_counting("w", {1})}, {make_value("x"), make_value("c")}, {"y", "m", "z"});
  EXPECT_EQ(run_only("constant_folding", model), 0) << "nothing to evaluate with";
  EXPECT_EQ(run_only("constant_folding", model, adding()), 3);
  EXPECT_EQ(ops_of(model.graph), "Mul If Add") << "a node that makes an output stays";
  EXPECT_EQ(model.graph.find_initializer("b")->tensor.to_float()[0], 3.0F);
  EXPECT_EQ(subgraphs(model.graph.nodes[1])[0]->find_initializer("t")->tensor.to_float()[0], 4.0F);
}

TEST(ConstantFolding, ABranchsOwnValueHidesTheConstant) {
  Model model = make_model(
      {make_node(
          "Loop", {"n", "c"}, {"y"},
          {{"body",
            std::make_shared<Graph>(make_model({make_node("Add", {"w", "k"}, {"t"}), make_node("Neg", {"t"}, {"u"})},
                                               {make_counting("k", {1})}, {make_value("w")}, {"u"})
                                        .graph),
            {}}})},
      {make_counting("w", {1})}, {make_value("n"), make_value("c")}, {"y"});
  EXPECT_EQ(run_only("constant_folding", model, adding()), 0);
}

Node widening(const std::string& from, const std::string& to) {
  return make_node("Cast", {from}, {to}, {{"to", static_cast<int64_t>(DType::Float32), {}}});
}

Initializer ones_in_16_bits(const std::string& name, const Shape& shape) {
  const std::vector<uint16_t> ones(static_cast<size_t>(element_count(shape)), 0x3F80);
  return {name, Tensor::copy_bytes(DType::BFloat16, shape, std::as_bytes(std::span(ones))), {}, {}};
}

PassContext copying() {
  PassContext context;
  context.evaluate = [](const Node&, const Model&, std::span<const Tensor> inputs) {
    return std::vector<Tensor>{Tensor::of<float>(inputs[0].shape(), inputs[0].to_float())};
  };
  return context;
}

TEST(ConstantFolding, WidensLargeConstants) {
  constexpr int64_t kRows = 9 << 10, kColumns = 1 << 10;  // more than 16 MiB are added
  Model model = make_model({widening("w16", "w"), make_node("Add", {"x", "w"}, {"y"})},
                           {ones_in_16_bits("w16", {kRows, kColumns})}, {make_value("x", {1, kColumns})}, {"y"});
  EXPECT_EQ(run_only("constant_folding", model, copying()), 1);
  EXPECT_EQ(ops_of(model.graph), "Add");
}

TEST(ConstantFolding, LeavesWeightsIn16Bits) {
  const auto model_of = [](Node reader, std::vector<Node> behind = {}) {
    std::vector<Node> nodes{widening("w16", "w"), std::move(reader)};
    nodes.insert(nodes.end(), behind.begin(), behind.end());
    return make_model(std::move(nodes), {ones_in_16_bits("w16", {4, 4}), make_counting("v", {4})},
                      {make_value("x", {4, 4})}, {"y"});
  };
  Model product = model_of(make_node("MatMul", {"x", "w"}, {"y"}));
  EXPECT_EQ(run_only("constant_folding", product, copying()), 0);
  EXPECT_EQ(ops_of(product.graph), "Cast MatMul");
  // Where more is done to it than multiplying.
  Model turned = model_of(make_node("Transpose", {"w"}, {"t"}), {make_node("MatMul", {"x", "t"}, {"y"})});
  EXPECT_EQ(run_only("constant_folding", turned, copying()), 2);
  Model squared = model_of(make_node("MatMul", {"w", "w"}, {"s"}), {make_node("Add", {"x", "s"}, {"y"})});
  EXPECT_EQ(run_only("constant_folding", squared, copying()), 2);
  Model normed = model_of(make_node("Conv", {"x", "w"}, {"c"}),
                          {make_node("BatchNormalization", {"c", "v", "v", "v", "v"}, {"y"})});
  EXPECT_EQ(run_only("constant_folding", normed, copying()), 1);
}

TEST(ConstantFolding, LeavesQuantizedWeightsRandomAndHugeOnes) {
  const Initializer shape{"s", Tensor::of({2}, std::vector<int64_t>{1 << 20, 1 << 20}), {}, {}};
  const Initializer small{"small", Tensor::of({1}, std::vector<int64_t>{4}), {}, {}};
  const Initializer large{"large", Tensor::of({1}, std::vector<int64_t>{5 << 20}), {}, {}};
  Model model =
      make_model({make_node("DequantizeLinear", {"w", "w"}, {"a"}), make_node("RandomNormalLike", {"w"}, {"b"}),
                  make_node("ConstantOfShape", {"s"}, {"c"}), make_node("ConstantOfShape", {"small"}, {"d"}),
                  make_node("ConstantOfShape", {"large"}, {"f"}), make_node("Any", {"w"}, {"e"}),
                  make_node("Sum", {"a", "b", "c", "d", "e", "f"}, {"y"})},
                 {make_counting("w", {1}), shape, small, large}, {}, {"y"});
  EXPECT_EQ(run_only("constant_folding", model, adding()), 1);
  EXPECT_NE(model.graph.find_initializer("d"), nullptr);
}

/// gamma, beta, mean, variance of a norm over `channels`, each channel another.
std::vector<Initializer> norm_constants(int64_t channels) {
  const std::vector<float> ones(static_cast<size_t>(channels), 1.0F);
  std::vector<float> variance;
  for (int64_t c = 0; c < channels; ++c) variance.push_back(static_cast<float>((c + 1) * (c + 1)));
  return {make_constant("gamma", {channels}, variance), make_counting("beta", {channels}),
          make_constant("mean", {channels}, ones), make_constant("var", {channels}, variance)};
}

Model layer_and_norm(Node layer, Initializer weight, int64_t channels) {
  std::vector<Initializer> constants = norm_constants(channels);
  constants.push_back(std::move(weight));
  Node norm = make_node("BatchNormalization", {"a", "gamma", "beta", "mean", "var"}, {"n"}, {{"epsilon", 0.0F, {}}});
  return make_model({std::move(layer), std::move(norm), make_node("Relu", {"n"}, {"y"})}, constants, {make_value("x")},
                    {"y"});
}

std::vector<float> constant_of(const Model& model, const std::string& name) {
  const Initializer* found = model.graph.find_initializer(name);
  EXPECT_NE(found, nullptr) << name;
  return found == nullptr ? std::vector<float>{} : found->tensor.to_float();
}

// With these constants channel c is multiplied by c + 1, and its bias is (c + 1) − (c + 1) · 1 = 0 without one before.
TEST(FoldBatchNorm, ScalesTheOutputChannelsOfAConvolution) {
  Model model = layer_and_norm(make_node("Conv", {"x", "c.weight"}, {"a"}),
                               make_constant("c.weight", {2, 2, 1}, {1, 2, 3, 4}), 2);
  EXPECT_EQ(run_only("fold_batch_norm", model), 1);
  EXPECT_EQ(ops_of(model.graph), "Conv Relu");
  EXPECT_EQ(model.graph.nodes[0].outputs[0], "n");
  EXPECT_EQ(model.graph.nodes[0].inputs, (std::vector<std::string>{"x", "c.weight", "c.bias"}));
  EXPECT_EQ(constant_of(model, "c.weight"), (std::vector<float>{1, 2, 6, 8}));
  EXPECT_EQ(constant_of(model, "c.bias"), (std::vector<float>{0, 0}));
}

TEST(FoldBatchNorm, KnowsTheLayoutOfAGroupedTransposedConvolution) {
  Model model = layer_and_norm(make_node("ConvTranspose", {"x", "w"}, {"a"}, {{"group", int64_t{2}, {}}}),
                               make_constant("w", {4, 2, 1}, {1, 1, 1, 1, 1, 1, 1, 1}), 4);
  EXPECT_EQ(run_only("fold_batch_norm", model), 1);
  EXPECT_EQ(constant_of(model, "w"), (std::vector<float>{1, 2, 1, 2, 3, 4, 3, 4}));
  EXPECT_EQ(constant_of(model, "w_bias").size(), 4U);
}

TEST(FoldBatchNorm, KnowsBothLayoutsOfGemmAndItsBeta) {
  for (const int64_t transposed : {0, 1}) {
    Node gemm = make_node("Gemm", {"x", "w", "b"}, {"a"}, {{"transB", transposed, {}}, {"beta", 2.0F, {}}});
    Model model = layer_and_norm(gemm, make_constant("w", {2, 2}, {1, 1, 1, 1}), 2);
    model.graph.initializers.push_back(make_constant("b", {2}, {1, 1}));
    EXPECT_EQ(run_only("fold_batch_norm", model), 1);
    EXPECT_EQ(constant_of(model, "w"),
              transposed != 0 ? (std::vector<float>{1, 1, 2, 2}) : (std::vector<float>{1, 2, 1, 2}));
    EXPECT_EQ(constant_of(model, "b"), (std::vector<float>{2, 4}));
    EXPECT_EQ(model.graph.nodes[0].find("beta"), nullptr);
  }
}

TEST(FoldBatchNorm, FoldsOneAfterAnother) {
  Model model = layer_and_norm(make_node("Conv", {"x", "w"}, {"a"}), make_constant("w", {2, 1, 1}, {1, 1}), 2);
  model.graph.nodes[2] =
      make_node("BatchNormalization", {"n", "gamma", "beta", "mean", "var"}, {"y"}, {{"epsilon", 0.0F, {}}});
  EXPECT_EQ(run_only("fold_batch_norm", model), 2);
  EXPECT_EQ(ops_of(model.graph), "Conv");
  EXPECT_EQ(constant_of(model, "w"), (std::vector<float>{1, 4}));
}

TEST(FoldBatchNorm, ASharedWeightIsNotChangedForTheOthers) {
  Model model = layer_and_norm(make_node("Conv", {"x", "w"}, {"a"}), make_constant("w", {2, 1, 1}, {1, 1}), 2);
  model.graph.nodes.push_back(make_node("Conv", {"x", "w"}, {"z"}));
  model.graph.outputs.push_back(make_value("z"));
  EXPECT_EQ(run_only("fold_batch_norm", model), 1);
  EXPECT_EQ(constant_of(model, "w"), (std::vector<float>{1, 1}));
  EXPECT_EQ(constant_of(model, model.graph.nodes[0].inputs[1]), (std::vector<float>{1, 2}));
}

TEST(FoldBatchNorm, LeavesWhatItMust) {
  const auto conv = [] {
    return layer_and_norm(make_node("Conv", {"x", "w"}, {"a"}), make_constant("w", {2, 1, 1}, {1, 1}), 2);
  };
  Model model = conv();
  model.graph.outputs.push_back(make_value("a"));
  EXPECT_EQ(run_only("fold_batch_norm", model), 0) << "the layer's own output is wanted";
  model = conv();
  model.graph.nodes.push_back(make_node("Neg", {"a"}, {"z"}));
  EXPECT_EQ(run_only("fold_batch_norm", model), 0) << "somebody else reads it";
  model = conv();
  model.graph.nodes[1].set("training_mode", int64_t{1});
  EXPECT_EQ(run_only("fold_batch_norm", model), 0);
  model = conv();
  model.graph.initializers[0] = make_constant("gamma", {1}, {1});
  EXPECT_EQ(run_only("fold_batch_norm", model), 0) << "the channels do not match";
  model = conv();
  model.graph.initializers.erase(model.graph.initializers.begin());
  model.graph.inputs.push_back(make_value("gamma"));
  EXPECT_EQ(run_only("fold_batch_norm", model), 0) << "gamma is not constant";
}

TEST(HoistWeights, TakesThemOutOfSubgraphsAndKeepsEqualOnesOnce) {
  const auto with = [](std::vector<Initializer> own) {
    const std::vector<Node> nodes{make_node("MatMul", {"x", "w"}, {"h"}), make_node("MatMul", {"h", "v"}, {"i"}),
                                  make_node("Add", {"i", "b"}, {"z"})};
    return std::make_shared<Graph>(make_model(nodes, std::move(own), {}, {"z"}).graph);
  };
  const Initializer same = make_counting("w", {3, 3}), bias = make_counting("b", {3});
  Model model =
      make_model({make_node("If", {"c"}, {"y"},
                            {{"then_branch", with({same, make_constant("v", {3, 1}, {1, 2, 3}), bias}), {}},
                             {"else_branch", with({same, make_constant("v", {3, 1}, {4, 5, 6}), bias}), {}}})},
                 {}, {make_value("x"), make_value("c")}, {"y"});
  EXPECT_EQ(run_only("hoist_weights", model), 4);
  ASSERT_EQ(model.graph.initializers.size(), 3U) << "w once, v twice";
  const std::vector<std::shared_ptr<Graph>> branches = subgraphs(model.graph.nodes[0]);
  EXPECT_EQ(branches[0]->nodes[0].inputs[1], branches[1]->nodes[0].inputs[1]);
  EXPECT_NE(branches[0]->nodes[1].inputs[1], branches[1]->nodes[1].inputs[1]);
  for (const auto& inside : branches) {
    ASSERT_EQ(inside->initializers.size(), 1U);
    EXPECT_EQ(inside->initializers[0].name, "b") << "no weight of a layer";
  }
  EXPECT_EQ(run_only("hoist_weights", model), 0);
}

TEST(HoistWeights, LeavesDefaultsOfInputsAndOutputsOfTheBranch) {
  const auto inside = std::make_shared<Graph>(
      make_model({make_node("MatMul", {"x", "w"}, {"z"})}, {make_counting("w", {2, 2})}, {}, {"z", "w"}).graph);
  const auto other =
      std::make_shared<Graph>(make_model({make_node("MatMul", {"x", "u"}, {"z2"}), make_node("Relu", {"u"}, {"u2"})},
                                         {make_counting("u", {2, 2})}, {}, {"z2", "u2"})
                                  .graph);
  Model model =
      make_model({make_node("If", {"c"}, {"y", "y2"}, {{"then_branch", inside, {}}, {"else_branch", other, {}}})},
                 {make_counting("default", {2, 2})}, {make_value("x"), make_value("c"), make_value("default", {2, 2})},
                 {"y", "y2"});
  EXPECT_EQ(run_only("hoist_weights", model), 1);
  ASSERT_EQ(model.graph.initializers.size(), 2U);
  EXPECT_EQ(model.graph.initializers[1].name, "u") << "not the default of an input, which a caller may change";
}

}  // namespace
}  // namespace kaon
